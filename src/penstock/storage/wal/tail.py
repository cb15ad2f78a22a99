"""The end of the log on disk: the segment that is written to, and the spare that comes next.

Everything here blocks, belongs to the writer and fails with plain ``OSError``; what a
failure means is for the log to say. The order of the steps is what durability rests on:

* a segment is cut to its length and synced before the next one appears;
* a segment gets its name only after its header is durable, and its first record only after its name
  is. This holds in every mode, so a bad header or a gap in the numbers always means corruption.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from penstock.storage.wal.files import Files, WritableFile
from penstock.storage.wal.record import MARK_BYTES, encode_mark
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    SALT_BYTES,
    VERSION,
    SegmentHeader,
    file_name,
    offset_of,
    position_of,
    read_header,
    segment_of,
    write_header,
)

__all__ = ["MARK_RESERVED", "Space", "SyncMode", "Tail", "is_no_space"]

# Stands where a group's mark will be; only when it is written is it known what is synced by then.
MARK_RESERVED = bytes(MARK_BYTES)

_SPARE = "spare.log"

# How much is zeroed at a time, ahead of the records: little at first, for many a log stays small.
_FEWEST_ZEROS = 2**16
_MOST_ZEROS = 2**20

# A larger group takes longer to write than to note: for it, zeros are only as much again to write,
# and it uses up those that were meant for others. So they come after that many small ones in a row.
_MOST_ZEROED_FOR = 2**16
_SMALL_IN_A_ROW = 8


class SyncMode(Enum):
    """When a commit is durable."""

    ALWAYS = "always"  # when it returns
    INTERVAL = "interval"  # at the next ``Log.sync``, which the committer calls periodically
    NEVER = "never"  # when the operating system gets to it


class Space(NamedTuple):
    """The disk space at hand: replaced as a whole, so any thread may look at it."""

    segment: int  # the newest one that exists
    spare_bytes: int  # 0 when there is no spare


class Tail:
    """Where records reach the disk.

    ``written`` and ``synced`` are the positions up to which they did, and are durable.
    ``capacity`` is the size that the segment in use was allocated with.
    """

    def __init__(
        self, files: Files, *, sync_mode: SyncMode, random_bytes: Callable[[int], bytes]
    ) -> None:
        self.sync_mode = sync_mode
        self.written = 0
        self.synced = 0
        self.capacity = 0
        self.version = VERSION  # of the segment in use
        self.space = Space(0, 0)
        self._files = files
        self._random_bytes = random_bytes
        self._file: WritableFile | None = None
        self._spare: WritableFile | None = None
        self._salt = b""
        self._ends_in_mark = False
        self._zeroed = 0  # up to this offset, the segment in use is made of written blocks
        self._small_groups = _SMALL_IN_A_ROW - 1  # written since a large one; the first counts

    def resume(self, replay: Replay, end: int, *, segment_bytes: int) -> None:
        """Go on at ``end``: cut off what is torn, and make all that was replayed durable.

        Without the space for a whole segment the capacity is what it holds already.
        """
        number, offset = segment_of(end), offset_of(end)
        for torn in reversed(replay.torn_segments):  # from the back: no gap if this is cut short
            self._files.remove(file_name(torn))
        # Even with nothing removed: a process that died may have left names that are not durable.
        self._files.sync_directory()
        for earlier in range(max(segment_of(replay.synced), replay.first_segment), number):
            self._sync_segment(earlier)
        name = file_name(number)
        header = read_header(self._files.read_at(name, 0, HEADER_BYTES), number=number)
        file = self._file = self._files.open(name)
        if replay.torn_bytes:
            file.truncate(offset)
        # After a failed sync the kernel shows bytes that never reached the disk, and a new sync
        # would not write them. So whatever is not proven durable is written once more.
        start = max(replay.synced, position_of(number, HEADER_BYTES))
        if start < end:
            data = self._files.read_at(name, offset_of(start), end - start)
            file.write_at(offset_of(start), [data])
        self.capacity = max(segment_bytes, offset)
        try:
            if self._files.size(name) < self.capacity:
                file.allocate(self.capacity)
        except OSError as exc:
            if not is_no_space(exc):
                raise
            self.capacity = offset
        file.sync()
        self.written = self.synced = end
        self.space = Space(number, 0)
        self._salt = header.salt
        self._zeroed = offset
        self.version = header.version
        self._ends_in_mark = replay.closed

    def write(self, offset: int, buffers: list[bytes], *, is_last: bool) -> None:
        """Write records to the segment in use; the last ones of a commit are synced by the mode.

        Those before the last need no sync of their own: the segment's end is synced with it.
        """
        if buffers[0] is MARK_RESERVED:
            buffers[0] = encode_mark(self._salt, self.synced)
        sync = is_last and self.sync_mode is SyncMode.ALWAYS
        self._active.write_at(offset, buffers, sync=sync)
        size = sum(map(len, buffers))
        self._small_groups = self._small_groups + 1 if size <= _MOST_ZEROED_FOR else 0
        self.written = position_of(self.space.segment, offset + size)
        self._ends_in_mark = False
        if sync:
            self.synced = self.written

    def sync(self) -> None:
        """Make all that was written durable."""
        if self.synced < self.written:
            # Where nothing is synced by itself, neither was a segment that has come to its end.
            for ended in range(segment_of(self.synced), self.space.segment):
                with suppress(FileNotFoundError):  # retention has removed it
                    self._sync_ended(ended)
            self._active.sync()
            self.synced = self.written

    @property
    def lacks_zeros(self) -> bool:
        """Whether the records come close to blocks that were allocated and never written.

        To sync such a block, the file system must also note in its own journal that it is in use
        now: for a group of some kilobytes that takes as long again as the sync itself.
        """
        if self.sync_mode is not SyncMode.ALWAYS or self._zeroed >= self.capacity:
            return False
        if self._small_groups < _SMALL_IN_A_ROW:
            return False
        return self._zeroed - offset_of(self.written) < self._zeros // 2

    @property
    def _zeros(self) -> int:
        return min(max(offset_of(self.written), _FEWEST_ZEROS), _MOST_ZEROS)

    def zero_ahead(self) -> None:
        """Write zeros beyond the records, where there are zeros already for whoever reads."""
        start = max(self._zeroed, offset_of(self.written))
        stop = min(start + self._zeros, self.capacity)
        self._zeroed = self.capacity  # if it fails for want of space, that is the end of it
        try:
            self._active.write_at(start, [bytes(stop - start)], sync=True)
        except OSError as exc:
            if not is_no_space(exc):
                raise
        else:
            self._zeroed = stop

    def begin_segment(self, number: int, capacity: int) -> None:
        """Finish the segment in use, if there is one, and make the spare the next."""
        if self._file is not None:
            self._seal(self._file)
            self._file = None
        spare = self.allocate_spare(capacity)
        salt = self._random_bytes(SALT_BYTES)
        header = SegmentHeader(number=number, synced=self.synced, salt=salt)
        spare.write_at(0, [write_header(header)])
        spare.sync()
        self._files.rename(_SPARE, file_name(number))
        self._files.sync_directory()
        self._file, self._spare = spare, None
        self._salt = salt
        self._zeroed = HEADER_BYTES
        self.version = VERSION
        self._ends_in_mark = False
        self.capacity = capacity
        self.written = position_of(number, HEADER_BYTES)
        if self.sync_mode is not SyncMode.NEVER:
            self.synced = self.written
        self.space = Space(number, 0)

    def allocate_spare(self, capacity: int) -> WritableFile:
        """Have a spare segment of at least that capacity, or else the one there was before."""
        spare = self._spare
        if spare is not None and self.space.spare_bytes >= capacity:
            return spare
        if spare is None:
            try:
                spare = self._files.create(_SPARE)
            except FileExistsError:  # of an earlier process; it holds a header at most
                spare = self._files.open(_SPARE)
                spare.truncate(capacity)
        try:
            spare.allocate(capacity)
        except OSError:
            if self._spare is not None:
                spare.truncate(self.space.spare_bytes)
            else:
                spare.close()
                self._files.remove(_SPARE)
            raise
        self._spare = spare
        self.space = Space(self.space.segment, capacity)
        return spare

    def finish(self, *, keep_space: bool) -> None:
        """Sync, and end the log in a mark, so that damage to any record will show.

        Space that was allocated ahead goes back to the disk, unless it could not be had again.
        """
        end = offset_of(self.written)
        if self.sync_mode is not SyncMode.NEVER:
            self.sync()
            has_records = end > HEADER_BYTES and not self._ends_in_mark
            if has_records and end + MARK_BYTES <= self.capacity:
                self._active.write_at(end, [encode_mark(self._salt, self.synced)], sync=True)
                end += MARK_BYTES
        if keep_space:
            return
        self._active.truncate(end)
        if self._spare is not None:
            self._spare.close()
            self._spare = None
            self._files.remove(_SPARE)

    def close(self) -> None:
        """Let go of the files."""
        for file in (self._file, self._spare):
            if file is not None:
                file.close()

    @property
    def _active(self) -> WritableFile:
        assert self._file is not None
        return self._file

    def _seal(self, file: WritableFile) -> None:
        file.truncate(offset_of(self.written))
        if self.sync_mode is not SyncMode.NEVER:
            file.sync()
            self.synced = self.written
        file.close()

    def _sync_ended(self, number: int) -> None:
        file = self._files.open(file_name(number))
        try:
            file.sync()
        finally:
            file.close()

    def _sync_segment(self, number: int) -> None:
        name = file_name(number)
        file = self._files.open(name)
        try:
            file.write_at(0, [self._files.read(name)])  # once more, as the last one in `resume`
            file.sync()
        finally:
            file.close()


def is_no_space(exc: OSError) -> bool:
    """Whether the disk, or what the process may use of it, is full."""
    return exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

"""The end of the log on disk: the current segment, and the spare that comes next.

Everything here blocks, belongs to the writer and fails with plain ``OSError``; the log decides what
a failure means. Durability depends on the order of the steps:

* a segment is truncated to its length and synced before the next one appears;
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

# A placeholder for a group's mark: what is synced is known only when the group is written.
MARK_RESERVED = bytes(MARK_BYTES)

_SPARE = "spare.log"

# How much is zeroed at a time, ahead of the records: little at first, since many logs stay small,
# and never so much that the commit which does it keeps others waiting.
_FEWEST_ZEROS = 2**16
_MOST_ZEROS = 2**18

# For a larger group, writing the zeros would cost more than they save, and it would use up those
# meant for small ones. So zeros are written only after that many small groups in a row.
_MOST_ZEROED_FOR = 2**16
_SMALL_IN_A_ROW = 8


class SyncMode(Enum):
    """When a commit is durable."""

    ALWAYS = "always"  # when it returns
    INTERVAL = "interval"  # at the next ``Log.sync``, which the committer calls periodically
    NEVER = "never"  # when the operating system gets to it


class Space(NamedTuple):
    """The allocated disk space. Replaced as a whole, so any thread may read it."""

    segment: int  # the newest that exists
    spare_bytes: int  # 0 if there is no spare


class Tail:
    """Where records reach the disk.

    ``written`` and ``synced`` are the positions up to which they are written and durable.
    ``capacity`` is the allocated size of the current segment.
    """

    def __init__(
        self, files: Files, *, sync_mode: SyncMode, random_bytes: Callable[[int], bytes]
    ) -> None:
        self.sync_mode = sync_mode
        self.written = 0
        self.synced = 0
        self.capacity = 0
        self.version = VERSION  # of the current segment
        self.space = Space(0, 0)
        self._files = files
        self._random_bytes = random_bytes
        self._file: WritableFile | None = None
        self._spare: WritableFile | None = None
        self._salt = b""
        self._ends_in_mark = False
        self._zeroed = 0  # the blocks of the current segment up to this offset were written
        self._small_groups = _SMALL_IN_A_ROW - 1  # since a large one; one is enough at first

    def resume(self, replay: Replay, end: int, *, segment_bytes: int) -> None:
        """Continue at ``end``: cut off the torn tail, and make everything replayed durable.

        Without space for a whole segment, the capacity is what it holds already.
        """
        number, offset = segment_of(end), offset_of(end)
        for torn in reversed(replay.torn_segments):  # from the back, so that a crash leaves no gap
            self._files.remove(file_name(torn))
        # Even if nothing was removed: a process that died may have left names that are not durable.
        self._files.sync_directory()
        for earlier in range(max(segment_of(replay.synced), replay.first_segment), number):
            self._sync_segment(earlier)
        name = file_name(number)
        header = read_header(self._files.read_at(name, 0, HEADER_BYTES), number=number)
        file = self._file = self._files.open(name)
        # After a failed sync, the page cache has bytes that never reached the disk and that a new
        # sync would not write. So whatever is not proven durable is written once more, and a torn
        # tail that seems to be gone is cut off once more: it could reappear behind a new record. On
        # a full disk that would give up space that might not be available again.
        if replay.torn_bytes or self._has_spare(segment_bytes):
            file.truncate(offset)
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
        self.space = Space(number, self.space.spare_bytes)
        self._salt = header.salt
        self._zeroed = offset
        self.version = header.version
        self._ends_in_mark = replay.closed

    def write(self, offset: int, buffers: list[bytes], *, is_last: bool) -> None:
        """Write records to the current segment; the last ones of a commit are synced by the mode.

        Earlier ones in the same commit need no sync of their own: sealing their segment syncs them.
        """
        if buffers[0] is MARK_RESERVED:
            buffers[0] = encode_mark(self._salt, self.synced)
        file = self._active
        file.write_at(offset, buffers)
        size = sum(map(len, buffers))
        end = offset + size
        self._small_groups = self._small_groups + 1 if size <= _MOST_ZEROED_FOR else 0
        self.written = position_of(self.space.segment, end)
        self._ends_in_mark = False
        if is_last and self.sync_mode is SyncMode.ALWAYS:
            if end > self._zeroed and self._small_groups >= _SMALL_IN_A_ROW:
                self._zero_ahead(file, end)
            file.sync()
            self.synced = self.written

    def sync(self) -> None:
        """Make everything written durable."""
        if self.synced < self.written:
            # In the mode never, sealed segments were not synced either.
            for ended in range(segment_of(self.synced), self.space.segment):
                with suppress(FileNotFoundError):  # retention has removed it
                    self._sync_ended(ended)
            self._active.sync()
            self.synced = self.written

    def _zero_ahead(self, file: WritableFile, end: int) -> None:
        """Write zeros behind the records that end here, into space that already reads as zeros.

        The sync of a block that was allocated but never written makes the file system also journal
        that the block is in use now. For a group of a few kilobytes, that doubles the time of the
        sync. So the first group to reach such blocks does this for those that follow, too.
        """
        start = max(self._zeroed, end)
        zeros = min(max(end, _FEWEST_ZEROS), _MOST_ZEROS)
        stop = min(start + zeros, self.capacity)
        self._zeroed = self.capacity  # do not try again if it fails for lack of space
        try:
            file.write_at(start, [bytes(stop - start)])
        except OSError as exc:
            if not is_no_space(exc):
                raise
        else:
            self._zeroed = stop

    def begin_segment(self, number: int, capacity: int) -> None:
        """Seal the current segment, if there is one, and make the spare the next."""
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
        """Allocate a spare segment of at least that capacity. On failure, a former spare stays."""
        spare = self._spare
        if spare is not None and self.space.spare_bytes >= capacity:
            return spare
        if spare is None:
            try:
                spare = self._files.create(_SPARE)
            except FileExistsError:  # left by an earlier process; it has a header at most
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

    def _has_spare(self, capacity: int) -> bool:
        """Allocate the spare, unless the disk is full."""
        try:
            self.allocate_spare(capacity)
        except OSError as exc:
            if not is_no_space(exc):
                raise
            return False
        return True

    def finish(self, *, keep_space: bool) -> None:
        """Sync, and end the log with a mark, so that damage to any record will be noticed.

        Space that was allocated ahead is freed, unless ``keep_space``: on a full disk it might not
        be available again.
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
        """Close the files."""
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
            # Rewritten, like the last one in `resume`, and its length with it.
            data = self._files.read(name)
            file.truncate(len(data))
            file.write_at(0, [data])
            file.sync()
        finally:
            file.close()


def is_no_space(exc: OSError) -> bool:
    """Whether the disk is full, or a quota or file size limit is reached."""
    return exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

"""The log: records go in at its end, and are durable once their group is committed.

Two threads share it, and each method says whose it is:

* the **loop thread** appends: it encodes a record, learns its position and never waits;
* the **writer thread** commits: it writes all that was appended and syncs it. What is appended in
  the meantime is the next group.

A full disk is found before it can hurt: the space of the segment in use was allocated when it was
made, and the writer keeps one more, the *spare*, allocated ahead. ``room`` is what these two hold.

A write or sync that fails all the same is final. The kernel may have dropped the pages it could not
write, so to try again could report success for bytes that are gone. The log refuses everything from
then on except reading.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from threading import Lock

from penstock.errors import CorruptLog, DiskFull, StorageClosed, StorageError, StorageFailed
from penstock.storage.wal import record
from penstock.storage.wal.files import Files, WritableFile
from penstock.storage.wal.record import MARK_BYTES, Ending, Record, encode, encode_mark
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    SALT_BYTES,
    SegmentHeader,
    file_name,
    offset_of,
    position_of,
    read_header,
    segment_of,
    write_header,
)

__all__ = [
    "DEFAULT_SEGMENT_BYTES",
    "MAX_SEGMENT_BYTES",
    "MIN_SEGMENT_BYTES",
    "RECORD_OVERHEAD_BYTES",
    "Log",
    "SyncMode",
]

DEFAULT_SEGMENT_BYTES = 64 * 2**20
MIN_SEGMENT_BYTES = 1024
MAX_SEGMENT_BYTES = 2**32 - 1

# What a record may take beyond its payload: its header, and the mark that opens its group.
RECORD_OVERHEAD_BYTES = record.HEADER_BYTES + MARK_BYTES

# Publishes are refused while there is still room for this much, because acks must go through on a
# full disk: they are what lets old segments be dropped and the space come back. A mebibyte holds
# tens of thousands of acks.
SETTLE_RESERVE_BYTES = 2**20

_SPARE = "spare.log"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Stands where a group's mark will be; the writer knows only when it writes what is synced by then.
_MARK_RESERVED = bytes(MARK_BYTES)


class SyncMode(Enum):
    """When a commit is durable."""

    ALWAYS = "always"  # when it returns
    INTERVAL = "interval"  # at the next ``Log.sync``, which the committer calls periodically
    NEVER = "never"  # when the operating system gets to it


class _Run:
    """Bytes to write one after the other into one segment, of ``capacity`` bytes."""

    __slots__ = ("buffers", "capacity", "offset", "segment")

    def __init__(self, segment: int, offset: int, capacity: int) -> None:
        self.segment = segment
        self.offset = offset
        self.capacity = capacity
        self.buffers: list[bytes] = []


class Log:
    """An open log. The caller owns the directory's lock."""

    def __init__(
        self,
        files: Files,
        *,
        segment_bytes: int,
        sync_mode: SyncMode,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Use ``Log.open``."""
        if not MIN_SEGMENT_BYTES <= segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(
                f"a segment has {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes, "
                f"not {segment_bytes}"
            )
        self.sync_mode = sync_mode
        self.segment_bytes = segment_bytes
        self._files = files
        self._random_bytes = random_bytes
        # Guards what both threads use: the group that gathers, and the space they count on.
        self._lock = Lock()
        self._failure: Exception | None = None
        self._is_closed = False
        # Where the loop thread appends.
        self._runs: list[_Run] = []
        self._buffers: list[bytes] = []
        self._segment = 0
        self._offset = 0
        self._capacity = 0
        # What the writer thread has on disk.
        self._file: WritableFile | None = None
        self._on_disk = 0  # number of the newest segment
        self._salt = b""
        self._spare: WritableFile | None = None
        self._spare_bytes = 0
        self._is_disk_full = False
        self._ends_in_mark = False
        self._written = 0
        self._synced = 0

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        replay: Replay,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        sync_mode: SyncMode = SyncMode.ALWAYS,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> Log:
        """BLOCKING. Continue where ``replay`` found the end, or begin a log where there is none.

        Reads what the caller has left unread of ``replay``. The torn tail is cut off, and all that
        was replayed is durable, when it returns. A full disk is no obstacle unless the very first
        segment has no space: then ``DiskFull``.
        """
        if not replay.exhausted:
            for _ in replay:
                pass
        log = cls(
            files, segment_bytes=segment_bytes, sync_mode=sync_mode, random_bytes=random_bytes
        )
        try:
            if replay.end is None:
                log._create(replay.first_segment)
            else:
                log._continue(replay, replay.end)
        except OSError as exc:
            raise log._refusal(exc) from exc
        log.prepare()
        return log

    # -- the loop thread ---------------------------------------------------------------------------

    def append(self, kind: int, *parts: bytes) -> int:
        """Add a record and return its position. Never waits.

        The caller has made sure of ``room``. Without it the record is taken all the same and the
        space is sought when it is committed; if there is none then, the log fails.
        """
        data = encode(kind, *parts)
        size = len(data)
        with self._lock:
            if not self._runs:
                self._begin_group(size)
            offset = self._offset
            if offset + size > self._capacity:
                self._begin_segment(size)
                offset = self._offset
            self._offset = offset + size
            self._buffers.append(data)
            return self._segment << 32 | offset

    def roll(self) -> int:
        """Have all that follows in a new segment, and return its number. Never waits.

        Every record appended so far is in a segment of a lower number.
        """
        with self._lock:
            self._check()
            if self._offset > HEADER_BYTES:
                self._begin_segment(0)
            return self._segment

    @property
    def room(self) -> int:
        """Bytes that are sure to be appended without running out of disk space.

        For any records whose payloads, each with ``RECORD_OVERHEAD_BYTES``, add up to no more.
        """
        with self._lock:
            left = self._capacity - self._offset
            ahead = self._segment - self._on_disk
            if ahead == 0:
                # What no longer fits here may all have to go to the spare.
                return max(left, self._spare_bytes - HEADER_BYTES, 0)
            if ahead == 1 and self._spare_bytes >= self._capacity:
                return left
            return 0

    @property
    def settle_reserve(self) -> int:
        """How much of ``room`` a publish must leave untouched, for the acks that free space."""
        return min(SETTLE_RESERVE_BYTES, self.segment_bytes // 8)

    @property
    def end(self) -> int:
        """The position after the last record appended."""
        with self._lock:
            return position_of(self._segment, self._offset)

    @property
    def written(self) -> int:
        """Everything below this position was handed to the operating system, and can be read."""
        return self._written

    @property
    def synced(self) -> int:
        """Everything below this position is durable."""
        return self._synced

    @property
    def failure(self) -> Exception | None:
        """What made the log refuse everything but reading, if it does."""
        return self._failure

    def _begin_group(self, size: int) -> None:
        self._check()
        if self._offset + MARK_BYTES > self._capacity:
            self._begin_segment(size)  # whose header says what a mark would
            return
        run = _Run(self._segment, self._offset, self._capacity)
        run.buffers.append(_MARK_RESERVED)
        self._runs.append(run)
        self._buffers = run.buffers
        self._offset += MARK_BYTES

    def _begin_segment(self, size: int) -> None:
        self._segment += 1
        self._offset = HEADER_BYTES
        self._capacity = max(self.segment_bytes, HEADER_BYTES + size)
        run = _Run(self._segment, self._offset, self._capacity)
        self._runs.append(run)
        self._buffers = run.buffers

    # -- the writer thread -------------------------------------------------------------------------

    def commit(self) -> None:
        """BLOCKING. Write all that was appended so far; durable on return if the mode is always.

        Raises ``StorageFailed`` when that did not succeed, and from then on.
        """
        with self._lock:
            self._check()
            runs, self._runs = self._runs, []
        if not runs:
            return
        try:
            for run in runs:
                if run.segment != self._on_disk:
                    self._start_segment(run.segment, run.capacity)
                if run.buffers:
                    self._write(run, sync=run is runs[-1])
        except Exception as exc:
            raise self._fail(exc) from exc

    def sync(self) -> None:
        """BLOCKING. Make all that was committed durable, in the modes that have not done so."""
        self._check()
        if self._synced < self._written:
            try:
                self._active_file.sync()
            except Exception as exc:
                raise self._fail(exc) from exc
            self._synced = self._written

    def reserve(self, size: int = 0) -> None:
        """BLOCKING. Allocate the spare segment, so that ``room`` is at least ``size``.

        Raises ``DiskFull`` when the space cannot be had, which changes nothing.
        """
        self._check()
        capacity = max(self.segment_bytes, HEADER_BYTES + size)
        if self._spare_bytes >= capacity:
            return
        try:
            self._allocate_spare(capacity)
        except OSError as exc:
            self._is_disk_full = True
            raise self._refusal(exc) from exc
        self._is_disk_full = False

    def prepare(self) -> None:
        """BLOCKING. Called after each commit, once it was answered: keeps a spare segment ready.

        After a full disk it waits until ``reserve`` succeeds or a segment is removed: to ask again
        at every commit would slow them all down.
        """
        if self._spare_bytes == 0 and not self._is_disk_full:
            with suppress(DiskFull):  # not needed yet; ``room`` tells
                self.reserve()

    def remove(self, segments: Iterable[int]) -> None:
        """BLOCKING. Drop whole segments, durably. Those already gone are no matter."""
        self._check()
        numbers = sorted(segments)
        if numbers and numbers[-1] >= self._on_disk:
            raise ValueError(f"segment {numbers[-1]} is in use")
        try:
            for number in numbers:
                with suppress(FileNotFoundError):
                    self._files.remove(file_name(number))
            self._files.sync_directory()
        except OSError as exc:
            raise self._fail(exc) from exc
        self._is_disk_full = False

    def close(self) -> None:
        """BLOCKING. Commit and sync what is pending and let go of the files. Idempotent.

        Ends the log in a mark, so that after an orderly stop the damage of any record shows.
        """
        if self._is_closed:
            return
        try:
            if self._failure is None:
                self.commit()
                self._write_closing_mark()
        finally:
            self._is_closed = True
            for file in (self._file, self._spare):
                if file is not None:
                    file.close()

    def _create(self, number: int) -> None:
        self._start_segment(number, self.segment_bytes)
        self._segment, self._offset = number, HEADER_BYTES
        self._capacity = self.segment_bytes
        self._synced = self._written

    def _continue(self, replay: Replay, end: int) -> None:
        number, offset = segment_of(end), offset_of(end)
        for torn in reversed(replay.torn_segments):  # from the back: no gap if this is cut short
            self._files.remove(file_name(torn))
        if replay.torn_segments:
            self._files.sync_directory()
        for earlier in range(max(segment_of(replay.synced), replay.first_segment), number):
            file = self._files.open(file_name(earlier))
            try:
                file.sync()
            finally:
                file.close()
        name = file_name(number)
        header = read_header(self._files.read_at(name, 0, HEADER_BYTES), number=number)
        file = self._file = self._files.open(name)
        if replay.torn_bytes:
            file.truncate(offset)
        # After a failed sync the kernel shows bytes that never reached the disk, and a new sync
        # would not write them. So whatever is not proven durable is written once more.
        proven = offset_of(replay.synced) if segment_of(replay.synced) == number else 0
        start = max(proven, HEADER_BYTES)
        if start < offset:
            file.write_at(start, [self._files.read_at(name, start, offset - start)])
        self._capacity = max(self.segment_bytes, offset)
        try:
            file.allocate(self._capacity)
        except OSError as exc:
            if exc.errno not in _NO_SPACE:
                raise
            self._capacity = offset  # no room here, but all that is stored can be read
        file.sync()
        self._salt = header.salt
        self._segment = self._on_disk = number
        self._offset = offset
        self._written = self._synced = end
        self._ends_in_mark = replay.closed

    def _start_segment(self, number: int, capacity: int) -> None:
        """Seal the segment in use, and make the spare the next one.

        A segment gets its name only after its header is durable, and no record before its name is:
        in every mode, so that a bad header or a gap in the numbers always means corruption.
        """
        if self._file is not None:
            self._file.truncate(offset_of(self._written))
            if self.sync_mode is not SyncMode.NEVER:
                self._file.sync()
                self._synced = self._written
            self._file.close()
            self._file = None
        if self._spare_bytes < capacity:
            self._allocate_spare(capacity)
        spare = self._spare
        assert spare is not None
        salt = self._random_bytes(SALT_BYTES)
        header = SegmentHeader(number=number, synced=self._synced, salt=salt)
        spare.write_at(0, [write_header(header)])
        spare.sync()
        self._files.rename(_SPARE, file_name(number))
        self._files.sync_directory()
        self._file, self._salt = spare, salt
        self._written = position_of(number, HEADER_BYTES)
        if self.sync_mode is not SyncMode.NEVER:
            self._synced = self._written
        self._ends_in_mark = False
        with self._lock:
            self._on_disk = number
            self._spare, self._spare_bytes = None, 0

    def _write(self, run: _Run, *, sync: bool) -> None:
        if run.buffers[0] is _MARK_RESERVED:
            run.buffers[0] = encode_mark(self._salt, self._synced)
        sync = sync and self.sync_mode is SyncMode.ALWAYS
        self._active_file.write_at(run.offset, run.buffers, sync=sync)
        self._written = position_of(run.segment, run.offset + sum(map(len, run.buffers)))
        self._ends_in_mark = False
        if sync:
            self._synced = self._written

    def _write_closing_mark(self) -> None:
        if self.sync_mode is SyncMode.NEVER:
            return
        self.sync()
        offset = offset_of(self._written)
        if self._ends_in_mark or offset == HEADER_BYTES or offset + MARK_BYTES > self._capacity:
            return
        mark = encode_mark(self._salt, self._synced)
        try:
            self._active_file.write_at(offset, [mark], sync=True)
        except Exception as exc:
            raise self._fail(exc) from exc

    def _allocate_spare(self, capacity: int) -> None:
        """Have a spare segment of that capacity, or else the one there was before."""
        if self._spare is None:
            try:
                self._spare = self._files.create(_SPARE)
            except FileExistsError:  # of an earlier process; it holds a header at most
                self._spare = self._files.open(_SPARE)
                self._spare.truncate(capacity)
        try:
            self._spare.allocate(capacity)
        except OSError:
            if self._spare_bytes:
                self._spare.truncate(self._spare_bytes)
            else:
                self._spare.close()
                self._spare = None
                self._files.remove(_SPARE)
            raise
        with self._lock:
            self._spare_bytes = capacity

    @property
    def _active_file(self) -> WritableFile:
        assert self._file is not None
        return self._file

    # -- any thread --------------------------------------------------------------------------------

    def read(self, position: int, size_hint: int = 4096) -> Record:
        """BLOCKING. The record at a position below ``written``.

        ``size_hint`` is how many bytes it is thought to have, header included: if they are enough
        it takes one read. Raises ``CorruptLog`` when there is no good record.
        """
        self._check_written(position)
        name, offset = file_name(segment_of(position)), offset_of(position)
        size = max(size_hint, record.HEADER_BYTES)
        try:
            data = self._files.read_at(name, offset, size)
            whole = record.size_at(data)
            if whole > len(data) == size and offset + whole <= self._files.size(name):
                data = self._files.read_at(name, offset, whole)
        except OSError as exc:
            raise _unreadable(position) from exc
        return _decode(data, position)

    def read_nowait(self, position: int, size: int) -> Record | None:
        """Like ``read``, but None when it would have to wait for the disk.

        ``size`` is the size of the whole record, header included; if it is too small the answer is
        None as well.
        """
        self._check_written(position)
        try:
            data = self._files.read_at_nowait(
                file_name(segment_of(position)), offset_of(position), size
            )
        except OSError as exc:
            raise _unreadable(position) from exc
        if data is None or record.size_at(data) > size:
            return None
        return _decode(data, position)

    def _check_written(self, position: int) -> None:
        if position >= self._written:
            raise ValueError(
                f"position {position:#x} is not written yet: keep its record until then"
            )

    def _check(self) -> None:
        if self._failure is not None:
            raise _failed(self._failure) from self._failure
        if self._is_closed:
            raise StorageClosed("the log was closed: open the store again")

    def _fail(self, exc: Exception) -> StorageFailed:
        """Refuse everything from now on."""
        with self._lock:
            self._failure = exc
            self._runs, self._buffers = [], []
        return _failed(exc)

    def _refusal(self, exc: OSError) -> StorageError:
        """The error for a failure to get space: full disks pass, anything else is final."""
        if exc.errno in _NO_SPACE:
            return DiskFull(
                f"no disk space for another segment of {self.segment_bytes} bytes: free some, or "
                "lower the retention of a queue"
            )
        return self._fail(exc)


def _decode(data: bytes | bytearray, position: int) -> Record:
    found = record.decode(memoryview(data))
    if isinstance(found, Ending):
        raise _unreadable(position)
    return found


def _unreadable(position: int) -> CorruptLog:
    name, offset = file_name(segment_of(position)), offset_of(position)
    return CorruptLog(
        f"the record at offset {offset} of segment {name} cannot be read: restore the file from a "
        "backup, or run `penstock wal repair` to keep what is readable",
        file=name,
        offset=offset,
    )


def _failed(cause: Exception) -> StorageFailed:
    return StorageFailed(
        f"a write to the log failed ({cause}), and it was not tried again: what was stored before "
        "can still be read; repair the disk, then open the store again"
    )

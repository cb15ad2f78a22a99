"""The log: records are appended at its end, and are durable once their group is committed.

Two threads share it, and the methods are grouped by the thread they belong to:

* the **loop thread** appends: it encodes a record, learns its position and never waits;
* the **writer** commits: it writes everything appended so far and syncs it. What is appended in
  the meantime is the next group. The writer is a thread of its own, or the loop in its place.

A full disk is noticed before it does harm: the space of the current segment was allocated when it
was created, and the writer keeps another segment, the *spare*, allocated ahead. ``room`` is what
these two have left.

A write or sync that fails nevertheless is final. The kernel may have dropped the pages it could not
write, so a retry could report success for bytes that are gone. From then on the log refuses
everything but reading.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock

from penstock.errors import DiskFull, StorageClosed, StorageError, StorageFailed
from penstock.storage.wal import record
from penstock.storage.wal.files import Files
from penstock.storage.wal.record import MARK_BYTES, frame
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    VERSION,
    file_name,
    offset_of,
    position_of,
    segment_of,
)
from penstock.storage.wal.tail import MARK_RESERVED, SyncMode, Tail, is_no_space

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

# What a record may take besides its payload: its header, and the mark that opens its group.
RECORD_OVERHEAD_BYTES = record.HEADER_BYTES + MARK_BYTES

# Reserved for acks when publishes are already refused. Acks must go through on a full disk, because
# they let old segments be dropped and free space. A mebibyte holds tens of thousands of acks.
_SETTLE_RESERVE_BYTES = 2**20

# The part of a segment not available to records: its header, and the mark that closes the log.
_SEGMENT_OVERHEAD_BYTES = HEADER_BYTES + MARK_BYTES


class _Run:
    """Records to write back to back into one segment of ``capacity`` bytes."""

    __slots__ = ("buffers", "capacity", "offset", "segment")

    def __init__(self, segment: int, offset: int, capacity: int) -> None:
        self.segment = segment
        self.offset = offset
        self.capacity = capacity
        self.buffers: list[bytes] = []


class Log:
    """An open log. The caller holds the directory's lock."""

    def __init__(self, files: Files, tail: Tail, *, segment_bytes: int) -> None:
        """Use ``Log.open``."""
        self.segment_bytes = segment_bytes
        self._files = files
        self._tail = tail
        self._failure: Exception | None = None
        self._is_closed = False
        self._is_disk_full = False
        # Guards the group being gathered, which is all that both threads change.
        self._lock = Lock()
        self._runs: list[_Run] = []
        self._buffers: list[bytes] = []  # of the last run
        self._segment = segment_of(tail.written)
        self._offset = offset_of(tail.written)
        self._capacity = tail.capacity

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
        """BLOCKING. Continue where ``replay`` found the end, or begin a new log.

        Reads whatever the caller has left unread of ``replay``. On return, the torn tail is cut off
        and everything replayed is durable. A full disk is fine, unless there is no space for the
        very first segment: then raises ``DiskFull``.
        """
        if not MIN_SEGMENT_BYTES <= segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(
                f"a segment has {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes, "
                f"not {segment_bytes}"
            )
        if not replay.exhausted:
            for _ in replay:
                pass
        tail = Tail(files, sync_mode=sync_mode, random_bytes=random_bytes)
        try:
            if replay.end is None:
                tail.begin_segment(replay.first_segment, segment_bytes)
                tail.synced = tail.written
            else:
                tail.resume(replay, replay.end, segment_bytes=segment_bytes)
            log = cls(files, tail, segment_bytes=segment_bytes)
            log.prepare()
            if tail.version < VERSION and tail.space.spare_bytes:
                # Records of this version go into a segment that states it.
                log.roll()
        except OSError as exc:
            tail.close()
            raise _disk_full(segment_bytes) if is_no_space(exc) else _failed(exc) from exc
        except StorageError:
            tail.close()
            raise
        return log

    # -- the loop thread ---------------------------------------------------------------------------

    def append(self, kind: int, *parts: bytes | memoryview) -> int:
        """Add a record and return its position. Never waits.

        The caller has checked ``room``. Without room, the record is still accepted, and space is
        allocated at the commit; if there is none, the log fails.
        """
        buffers = frame(kind, *parts)
        size = record.HEADER_BYTES + len(buffers[1])
        with self._lock:
            if not self._runs:
                self._begin_group(size)
            offset = self._offset
            if offset + size + MARK_BYTES > self._capacity:
                self._begin_segment(size)
                offset = self._offset
            self._offset = offset + size
            self._buffers += buffers
            return self._segment << 32 | offset

    def roll(self, *, into_own_space: bool = False) -> int:
        """Start a new segment with the next record, and return its number. Never waits.

        Every record appended so far is in a segment with a lower number. Without a spare, the new
        one can be made ``into_own_space``: out of half of the unused space of the current segment,
        which is freed when that one is sealed.
        """
        with self._lock:
            self._check()
            if self._offset > HEADER_BYTES:
                unused = self._capacity - self._offset
                self._begin_segment(0)
                if into_own_space:
                    self._capacity = self._runs[-1].capacity = max(
                        unused // 2, _SEGMENT_OVERHEAD_BYTES
                    )
            return self._segment

    @property
    def room(self) -> int:
        """How many bytes can be appended without running out of disk space.

        Holds for any records whose payloads, each plus ``RECORD_OVERHEAD_BYTES``, fit into it.
        """
        with self._lock:
            left = max(self._capacity - MARK_BYTES - self._offset, 0)
            on_disk, spare_bytes = self._tail.space
            if self._segment == on_disk:
                # A record that does not fit here takes everything after it to the spare.
                return max(left, spare_bytes - _SEGMENT_OVERHEAD_BYTES)
            if self._segment == on_disk + 1 and spare_bytes >= self._capacity:
                return left
            return 0

    @property
    def has_spare(self) -> bool:
        """Whether the space that ``roll`` needs is allocated."""
        with self._lock:
            on_disk, spare_bytes = self._tail.space
            return self._segment == on_disk and spare_bytes >= self.segment_bytes

    @property
    def is_disk_full(self) -> bool:
        """Whether the last attempt to allocate space failed for lack of it."""
        return self._is_disk_full

    @property
    def publish_room(self) -> int:
        """How much of ``room`` messages may take. The rest is for acks, which free space."""
        reserve = min(_SETTLE_RESERVE_BYTES, self.segment_bytes // 8)
        if self._tail.space.spare_bytes == 0:
            # The disk may be full. Half a segment holds a great many acks, and leaves enough for
            # the new segment that a checkpoint starts, which is what frees old ones.
            reserve = self.segment_bytes // 2
        return max(self.room - reserve, 0)

    @property
    def end(self) -> int:
        """The position after the last record appended."""
        with self._lock:
            return position_of(self._segment, self._offset)

    def _begin_group(self, size: int) -> None:
        self._check()
        if self._offset + 2 * MARK_BYTES > self._capacity:
            self._begin_segment(size)  # its header states what a mark would
            return
        run = _Run(self._segment, self._offset, self._capacity)
        run.buffers.append(MARK_RESERVED)
        self._runs.append(run)
        self._buffers = run.buffers
        self._offset += MARK_BYTES

    def _begin_segment(self, size: int) -> None:
        self._segment += 1
        self._offset = HEADER_BYTES
        self._capacity = max(self.segment_bytes, size + _SEGMENT_OVERHEAD_BYTES)
        run = _Run(self._segment, self._offset, self._capacity)
        self._runs.append(run)
        self._buffers = run.buffers

    def is_small(self, most_bytes: int) -> bool:
        """Whether the next commit writes at most this much, to the current segment only."""
        with self._lock:
            runs = self._runs
            return (
                len(runs) == 1
                and runs[0].segment == self._tail.space.segment
                and self._offset - runs[0].offset <= most_bytes
            )

    # -- the writer --------------------------------------------------------------------------------

    def commit(self) -> None:
        """BLOCKING. Write everything appended so far; durable on return if the mode is always.

        Raises ``StorageFailed`` if that fails, and from then on. An exception from a signal handler
        in the middle of it leaves the log failed as well.
        """
        try:
            with self._lock:
                self._check()
                runs, self._runs = self._runs, []
            for run in runs:
                if run.segment != self._tail.space.segment:
                    self._tail.begin_segment(run.segment, run.capacity)
                if run.buffers:
                    self._tail.write(run.offset, run.buffers, is_last=run is runs[-1])
        except StorageError:
            raise
        except Exception as exc:
            raise self._fail(exc) from exc
        except BaseException as exc:
            # A signal handler raised it, on the loop. The group may be half written, so nothing
            # may be written after it.
            self._fail(InterruptedError(f"interrupted by {exc!r}"))
            raise

    def sync(self) -> None:
        """BLOCKING. Make everything committed durable, for the modes in which it is not yet."""
        self._check()
        try:
            self._tail.sync()
        except Exception as exc:
            raise self._fail(exc) from exc

    def reserve(self, size: int = 0) -> None:
        """BLOCKING. Allocate the spare segment, so that ``room`` is at least ``size``.

        Raises ``DiskFull`` if there is no space, and changes nothing then.
        """
        self._check()
        try:
            self._tail.allocate_spare(max(self.segment_bytes, size + _SEGMENT_OVERHEAD_BYTES))
        except OSError as exc:
            self._is_disk_full = is_no_space(exc)
            raise self.refusal(exc) from exc
        self._is_disk_full = False

    def prepare(self) -> None:
        """BLOCKING. Called after commits: keeps a spare segment.

        Once the disk was full, none is tried for until ``reserve`` succeeds or a segment is
        removed: trying at every commit would slow them all down.
        """
        if not self.is_prepared:
            with suppress(DiskFull):  # not needed yet; ``room`` shows it
                self.reserve()

    @property
    def is_prepared(self) -> bool:
        """Whether ``prepare`` has nothing to do."""
        return self._tail.space.spare_bytes > 0 or self._is_disk_full

    def remove(self, segments: Iterable[int]) -> None:
        """BLOCKING. Remove whole segments, durably. Those already gone are ignored."""
        self._check()
        numbers = sorted(segments)
        if numbers and numbers[-1] >= self._tail.space.segment:
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
        """BLOCKING. Commit and sync what is pending, and close the files. Idempotent.

        Reading is still possible. Raises ``StorageFailed`` if the last commit fails.
        """
        if self._is_closed:
            return
        try:
            if self._failure is None:
                self.commit()
                self._tail.finish(keep_space=self._is_disk_full)
        except OSError as exc:
            raise self._fail(exc) from exc
        finally:
            self._is_closed = True
            self._tail.close()

    # -- any thread --------------------------------------------------------------------------------

    @property
    def sync_mode(self) -> SyncMode:
        return self._tail.sync_mode

    @property
    def written(self) -> int:
        """Everything below this position was written to the operating system, and can be read."""
        return self._tail.written

    @property
    def synced(self) -> int:
        """Everything below this position is durable."""
        return self._tail.synced

    @property
    def is_committed(self) -> bool:
        """Whether everything appended so far is committed, by the mode: written or durable."""
        is_always = self._tail.sync_mode is SyncMode.ALWAYS
        # During a sync, what is being synced is written already.
        return (self._tail.synced if is_always else self._tail.written) >= self.end

    @property
    def failure(self) -> Exception | None:
        """Why the log refuses everything but reading, if it does."""
        return self._failure

    def _check(self) -> None:
        if self._failure is not None:
            raise _failed(self._failure) from self._failure
        if self._is_closed:
            raise StorageClosed("the log was closed: open the store again")

    def refusal(self, exc: OSError) -> StorageError:
        """The error to raise for a disk failure outside of the log itself.

        A lack of space does not affect the log. After any other failure the disk cannot be trusted,
        so the log fails as well.
        """
        return _disk_full(self.segment_bytes) if is_no_space(exc) else self._fail(exc)

    def _fail(self, exc: Exception) -> StorageError:
        """Refuse everything from now on."""
        with self._lock:
            self._failure = exc
            self._runs, self._buffers = [], []
        return _failed(exc)


def _disk_full(segment_bytes: int) -> DiskFull:
    return DiskFull(
        f"no disk space for another segment of {segment_bytes} bytes: free some, or lower the "
        "retention of a queue"
    )


def _failed(cause: Exception) -> StorageFailed:
    return StorageFailed(
        f"a write to the log failed ({cause}), and it was not tried again: what was stored before "
        "can still be read; repair the disk, then open the store again"
    )

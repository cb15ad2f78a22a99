"""Reading the log from front to back, without changing it.

Where the records stop, there are two cases, which must not be confused. A power loss may tear the
last writes, which were never acknowledged: that *torn tail* is to be cut off. Anything that was
synced and does not read back is *corruption*: cutting there would lose acknowledged data. Sync
marks and segment headers tell the two apart. Each states a position below which everything was
durable, so damage below such a position is corruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.errors import CorruptLog
from penstock.storage.wal import record
from penstock.storage.wal.files import Files
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    SegmentHeader,
    file_name,
    offset_of,
    position_of,
    read_header,
    segment_numbers,
    segment_of,
)

__all__ = ["FIRST_SEGMENT", "Replay", "damaged"]

FIRST_SEGMENT = 1

_ZEROS = bytes(1 << 20)


class Replay:
    """Every record from ``first_segment`` on, in order, without sync marks. Iterate once.

    Yields ``(position, kind, payload)``. A payload is a view of its whole segment: copy what you
    keep.

    ``synced`` is a position that the caller knows to be durable, such as that of a checkpoint.
    Raises ``NewerFormat``, and ``CorruptLog`` with the file and the offset where something durable
    is damaged or missing.

    Once exhausted, it knows where the log ends, for ``Log.open``:

    * ``end``: the position of the next record, or None if there is no segment yet;
    * ``synced``: the greatest position that is proven durable;
    * ``torn_bytes``: how much lies beyond ``end``, none of it acknowledged;
    * ``torn_segments``: the segments after the one that ``end`` is in;
    * ``closed``: whether the log was closed cleanly.
    """

    def __init__(
        self, files: Files, *, first_segment: int = FIRST_SEGMENT, synced: int = 0
    ) -> None:
        self.first_segment = first_segment
        self.synced = 0
        self.end: int | None = None
        self.torn_bytes = 0
        self.torn_segments: list[int] = []
        self.closed = False
        self.exhausted = False
        self._files = files
        self._known_synced = synced

    def __iter__(self) -> Iterator[tuple[int, int, memoryview]]:
        numbers = [n for n in segment_numbers(self._files) if n >= self.first_segment]
        if numbers or self._known_synced or self.first_segment != FIRST_SEGMENT:
            self._check_none_missing(numbers)
        for index, number in enumerate(numbers):
            header, data = _load_segment(self._files, number)
            self._note_synced(header.synced)
            scan = record.Scan(memoryview(data), HEADER_BYTES)
            yield from self._records(number, scan)
            self.end = position_of(number, scan.offset)
            if scan.ending is record.Ending.END and scan.offset == len(data):
                continue
            later = numbers[index + 1 :]
            if later or scan.ending is record.Ending.INVALID or not _is_zeros(data, scan.offset):
                self._note_synced(_synced_after(data, scan.offset, header, self._segments(later)))
                self._note_torn_tail(len(data) - scan.offset, later)
                break
        self._note_synced(self._known_synced)
        self.exhausted = True

    def _records(self, number: int, scan: record.Scan) -> Iterator[tuple[int, int, memoryview]]:
        """The records of one segment. Sync marks are evaluated on the way."""
        base = position_of(number, 0)
        mark = record.MARK
        closing = 0  # where the log must end if the last mark seen is the one that closed it
        for offset, kind, payload in scan:
            if kind == mark:
                synced = record.decode_mark(payload)
                self.synced = max(self.synced, synced)
                closing = offset + record.MARK_BYTES if synced == base + offset else 0
            else:
                yield base + offset, kind, payload
        self.closed = closing == scan.offset

    def _note_torn_tail(self, size: int, later: list[int]) -> None:
        """Note what lies beyond the end: bytes in its own segment, and the segments after it."""
        self.torn_bytes = size + sum(self._files.size(file_name(number)) for number in later)
        self.torn_segments = later

    def _note_synced(self, synced: int) -> None:
        """Note that everything below ``synced`` was durable. Raises unless all of it was read."""
        self.synced = max(self.synced, synced)
        if self.end is not None and synced > self.end:
            raise damaged(file_name(segment_of(self.end)), offset_of(self.end))

    def _segments(self, numbers: list[int]) -> Iterator[tuple[SegmentHeader, bytes]]:
        return (_load_segment(self._files, number) for number in numbers)

    def _check_none_missing(self, numbers: list[int]) -> None:
        """Raises `CorruptLog` unless there is every segment up to the last one known."""
        last = max([self.first_segment, segment_of(self._known_synced), *numbers[-1:]])
        missing = set(range(self.first_segment, last + 1)).difference(numbers)
        if missing:
            raise _missing(min(missing))


def _load_segment(files: Files, number: int) -> tuple[SegmentHeader, bytes]:
    data = files.read(file_name(number))
    return read_header(data, number=number), data


def _synced_after(
    data: bytes,
    offset: int,
    header: SegmentHeader,
    later: Iterable[tuple[SegmentHeader, bytes]],
) -> int:
    """The greatest synced position stated after ``offset``, here or in later segments."""
    synced = max(record.find_marks(data, offset, header.salt), default=0)
    for later_header, later_data in later:
        marks = record.find_marks(later_data, HEADER_BYTES, later_header.salt)
        synced = max([synced, later_header.synced, *marks])
    return synced


def _is_zeros(data: bytes, offset: int) -> bool:
    for start in range(offset, len(data), len(_ZEROS)):
        chunk = data[start : start + len(_ZEROS)]
        if chunk != _ZEROS[: len(chunk)]:
            return False
    return True


def damaged(name: str, offset: int) -> CorruptLog:
    """The error for a segment file that does not read back from an offset on."""
    return CorruptLog(
        f"segment {name} is damaged at offset {offset}, in data that had been synced: restore the "
        "file from a backup, or run `penstock wal repair` to keep what is readable",
        file=name,
        offset=offset,
    )


def _missing(number: int) -> CorruptLog:
    name = file_name(number)
    return CorruptLog(
        f"segment {name} is missing: restore the file from a backup, or run `penstock wal repair` "
        "to keep what is readable",
        file=name,
        offset=0,
    )

"""Reading a file of the log past its damage.

Recovery stops at the first bytes that are not a record. To see how much is damaged, or to keep the
rest, the next record after the damage must be found. These are trusted to tell where it is, in this
order, and each only if there is a good record at that place:

1. the length that the damaged record states;
2. the index of the segment, which knows where messages begin, or the next sync mark, which opens a
   group of records and whose salt never leaves the directory: whichever is nearer.

Nothing else is trusted: a message may contain bytes that look like a record, and its sender must
not be able to have them taken for one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from penstock.storage.wal import record
from penstock.storage.wal.segment import HEADER_BYTES, position_of, segment_of

__all__ = ["CUT", "DAMAGED", "MISSING", "UNKNOWN", "Damage", "Found", "Gap", "Walk"]

MISSING = "the segment is missing: the messages and events in it are lost"
DAMAGED = "the bytes are not what was written: the messages and events in them are lost"
CUT = "the file ends too early: the messages behind its end are lost"
UNKNOWN = "the record is none that this version of Penstock knows: it cannot be used"

_ZEROS = bytes(1 << 16)


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A damaged part of a file, ``bytes`` long."""

    file: str
    offset: int
    bytes: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file} at offset {self.offset}: {self.problem}"


class Found(NamedTuple):
    """A good record. ``payload`` is a view of the whole file: copy what you keep."""

    offset: int
    kind: int
    payload: memoryview

    @property
    def length(self) -> int:
        """Including the header."""
        return record.HEADER_BYTES + len(self.payload)


class Gap(NamedTuple):
    """Damaged bytes ``start <= offset < stop``, whose content is unknown."""

    start: int
    stop: int


class Walk:
    """The records of one file, without sync marks, and the gaps between them. Iterate once.

    ``promised`` has positions, from elsewhere, below which everything was durable; the marks in the
    file count as well. Damage beyond all of them is the torn end of the log: it is not a gap, and
    the walk ends before it. ``hints`` are offsets where records are known to begin.

    Afterwards, ``end`` is where the good records end, and ``torn_bytes`` is what to cut off.
    """

    def __init__(
        self,
        data: bytes,
        *,
        segment: int,
        salt: bytes,
        promised: Sequence[int] = (),
        hints: Sequence[int] = (),
    ) -> None:
        self.end = HEADER_BYTES
        self.torn_bytes = 0
        self._data = data
        self._segment = segment
        self._salt = salt
        self._promised = promised
        self._hints = sorted(hints)

    def __iter__(self) -> Iterator[Found | Gap]:
        data, view = self._data, memoryview(self._data)
        at = min(HEADER_BYTES, len(data))
        while True:
            scan = record.Scan(view, at)
            for offset, kind, payload in scan:
                if kind != record.MARK:
                    yield Found(offset, kind, payload)
            broken = self.end = scan.offset
            if self._is_end(broken):
                is_allocated = _is_zeros(data, broken)
                self.torn_bytes = 0 if is_allocated else len(data) - broken
                return
            found = self._resume(broken)
            at = self.end = len(data) if found is None else found
            yield Gap(broken, at)
            if found is None:
                return

    def _is_end(self, offset: int) -> bool:
        """Whether nothing beyond this offset of the file was ever known to be durable."""
        promised = list(self._promised)
        if self._last_mark is not None and self._last_mark[0] >= offset:
            promised.append(self._last_mark[1])
        if offset == len(self._data):
            # The file is complete unless it was once longer. Later segments do not matter here.
            promised = [p for p in promised if segment_of(p) == self._segment]
        return max(promised, default=0) <= position_of(self._segment, offset)

    @cached_property
    def _last_mark(self) -> tuple[int, int] | None:
        """The offset of the last mark and its synced position, the greatest of all marks."""
        found = self._data.rfind(self._salt)
        while found >= 0:
            start = found - record.HEADER_BYTES
            mark = self._mark_at(start)
            if mark is not None:
                return start, record.decode_mark(mark.payload)
            found = self._data.rfind(self._salt, 0, found + len(self._salt) - 1)
        return None

    def _mark_at(self, offset: int) -> record.Record | None:
        if offset < HEADER_BYTES:
            return None
        found = record.decode(memoryview(self._data), offset)
        if isinstance(found, record.Ending) or found.kind != record.MARK:
            return None
        return found

    def _resume(self, broken: int) -> int | None:
        """Where the records continue after a damaged one."""
        data, view = self._data, memoryview(self._data)
        if broken + record.HEADER_BYTES <= len(data):
            stated = broken + record.size_at(data[broken : broken + 4])
            if stated < len(data) and _is_record(view, stated):
                return stated
        hints = self._hints[bisect_right(self._hints, broken) :]
        hint = next((offset for offset in hints if _is_record(view, offset)), None)
        mark = self._next_mark(broken)
        return min((found for found in (hint, mark) if found is not None), default=None)

    def _next_mark(self, broken: int) -> int | None:
        found = self._data.find(self._salt, broken + 1)
        while found >= 0:
            start = found - record.HEADER_BYTES
            if start > broken and self._mark_at(start) is not None:
                return start
            found = self._data.find(self._salt, found + 1)
        return None


def _is_record(view: memoryview, offset: int) -> bool:
    return not isinstance(record.decode(view, offset), record.Ending)


def _is_zeros(data: bytes, offset: int) -> bool:
    for start in range(offset, len(data), len(_ZEROS)):
        chunk = data[start : start + len(_ZEROS)]
        if chunk != _ZEROS[: len(chunk)]:
            return False
    return True

"""A sorted set of indexes, kept as runs.

A queue's progress is mostly contiguous: a million acked messages are one run of two integers. The
cost of `Runs` grows with the number of gaps, not of indexes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["Run", "Runs", "cut", "runs_of"]

Run = tuple[int, int]
"""Indexes ``start <= i < stop``."""


def runs_of(indexes: Iterable[int]) -> list[Run]:
    """The runs of any indexes, ascending and without repeats."""
    ordered = sorted(indexes)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
        first, last = ordered[0], ordered[-1]
        if ordered == list(range(first, last + 1)):
            return [(first, last + 1)]  # the usual case, without looking at each
    runs: list[Run] = []
    start = stop = -1
    for index in ordered:
        if index == stop:
            stop += 1
        elif index > stop:
            if stop > start:
                runs.append((start, stop))
            start, stop = index, index + 1
    if stop > start:
        runs.append((start, stop))
    return runs


class Runs:
    """Disjoint, ascending, never adjacent runs: ``starts[i] < stops[i] < starts[i + 1]``."""

    __slots__ = ("_starts", "_stops", "count")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._starts = array("Q")
        self._stops = array("Q")
        self.count = 0
        for start, stop in runs:
            self.add(start, stop)

    def __iter__(self) -> Iterator[Run]:
        return zip(self._starts, self._stops, strict=True)

    def __len__(self) -> int:
        """The number of runs; `count` is the number of indexes."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs):
            return NotImplemented
        return self._starts == other._starts and self._stops == other._stops

    def __hash__(self) -> int:
        raise TypeError("Runs are mutable")

    def __repr__(self) -> str:
        return f"Runs({list(self)})"

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self._starts, index) - 1
        return at >= 0 and index < self._stops[at]

    @property
    def first(self) -> int | None:
        """The lowest index."""
        return self._starts[0] if self._starts else None

    @property
    def stop(self) -> int:
        """One above the highest index; 0 when empty."""
        return self._stops[-1] if self._stops else 0

    def copy(self) -> Runs:
        twin = Runs()
        twin._starts = self._starts[:]
        twin._stops = self._stops[:]
        twin.count = self.count
        return twin

    def add(self, start: int, stop: int) -> int:
        """Add a run. Returns how many of its indexes were new."""
        if start >= stop:
            return 0
        starts, stops = self._starts, self._stops
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            self.count += stop - start
            return stop - start
        if start >= starts[-1]:
            # The usual case: it continues the last run.
            added = stop - stops[-1]
            if added <= 0:
                return 0
            stops[-1] = stop
            self.count += added
            return added
        low = bisect_left(stops, start)
        high = bisect_right(starts, stop)
        if low == high:
            starts.insert(low, start)
            stops.insert(low, stop)
            self.count += stop - start
            return stop - start
        first, last = starts[low], stops[high - 1]
        if high - low == 1:
            before = last - first
        else:
            before = sum(stops[low:high]) - sum(starts[low:high])
            del starts[low + 1 : high], stops[low : high - 1]
        if start < first:
            first = starts[low] = start
        if stop > last:
            last = stops[low] = stop
        added = last - first - before
        self.count += added
        return added

    def discard(self, start: int, stop: int) -> int:
        """Remove a run. Returns how many of its indexes were in the set."""
        starts, stops = self._starts, self._stops
        if start >= stop or not stops or start >= stops[-1] or stop <= starts[0]:
            return 0
        low = bisect_right(stops, start)
        high = bisect_left(starts, stop)
        if low >= high:
            return 0
        first, last = starts[low], stops[high - 1]
        one = high - low == 1
        gone = last - first if one else sum(stops[low:high]) - sum(starts[low:high])
        gone -= max(0, start - first) + max(0, last - stop)
        self.count -= gone
        if one and first < start and stop < last:
            stops.insert(low, start)
            starts.insert(low + 1, stop)
            return gone
        if first < start:
            stops[low] = start
            low += 1
        if stop < last:
            starts[high - 1] = stop
            high -= 1
        if low < high:
            del starts[low:high], stops[low:high]
        return gone

    def extend(self, later: Runs) -> None:
        """Add other runs; in bulk if all of them lie at or above `stop`."""
        if not later._starts:
            return
        if later._starts[0] < self.stop:
            for run in later:
                self.add(*run)
            return
        first = later._starts[0], later._stops[0]
        self.add(*first)
        self._starts.extend(later._starts[1:])
        self._stops.extend(later._stops[1:])
        self.count += later.count - (first[1] - first[0])

    def next(self, index: int) -> int | None:
        """The lowest member that is at least ``index``."""
        at = bisect_right(self._stops, index)
        if at == len(self._starts):
            return None
        return max(index, self._starts[at])

    def next_gap(self, index: int) -> int:
        """The lowest non-member that is at least ``index``."""
        at = bisect_right(self._starts, index) - 1
        if at >= 0 and index < self._stops[at]:
            return self._stops[at]
        return index

    def within(self, start: int, stop: int) -> Iterator[Run]:
        """The parts of the runs that lie in ``[start, stop)``, ascending."""
        starts, stops = self._starts, self._stops
        at = bisect_right(stops, start)
        while at < len(starts) and starts[at] < stop:
            yield max(start, starts[at]), min(stop, stops[at])
            at += 1

    def outside(self, start: int, stop: int) -> Iterator[Run]:
        """The parts of ``[start, stop)`` that no run covers, ascending."""
        at = start
        for covered_start, covered_stop in self.within(start, stop):
            if at < covered_start:
                yield at, covered_start
            at = covered_stop
        if at < stop:
            yield at, stop

    def count_within(self, start: int, stop: int) -> int:
        return sum(b - a for a, b in self.within(start, stop))

    def dump(self) -> tuple[bytes, bytes]:
        return self._starts.tobytes(), self._stops.tobytes()

    @classmethod
    def load(cls, dumped: tuple[bytes, bytes]) -> Runs:
        runs = cls()
        runs._starts.frombytes(dumped[0])
        runs._stops.frombytes(dumped[1])
        runs.count = sum(runs._stops) - sum(runs._starts)
        return runs


def cut(runs: Iterable[Run], limit: int) -> list[Run]:
    """The first ``limit`` indexes of ascending runs."""
    found: list[Run] = []
    for start, stop in runs:
        if limit <= 0:
            break
        found.append((start, min(stop, start + limit)))
        limit -= stop - start
    return found

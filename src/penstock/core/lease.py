"""Deliveries in flight, and what is remembered of those that came back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from penstock.core.runs import Run

__all__ = ["Attempts", "Lease", "LeasedRun", "Leases"]


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A delivery in flight. `deliveries` includes this one.

    `reason` is that of the message's last nack, if it was nacked before.
    """

    epoch: int
    deadline_ns: int | None
    deliveries: int
    reason: str = ""


class LeasedRun(NamedTuple):
    """Neighbouring messages with equal leases: ``start <= index < stop``."""

    start: int
    stop: int
    lease: Lease


class Leases:
    """What is in flight, by index, kept as runs.

    Messages that are received together share a lease and are mostly settled together. So they are
    one entry, which splits only when some of them are settled or extended before others.
    The invariant: ``starts[i] < stops[i] <= starts[i + 1]``.
    """

    __slots__ = ("_count", "_leases", "_starts", "_stops")

    def __init__(self, leases: Mapping[int, Lease] | None = None) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._leases: list[Lease] = []
        self._count = 0
        for index, lease in sorted((leases or {}).items()):
            self.put(index, index + 1, lease)

    def __len__(self) -> int:
        """How many messages, not how many runs."""
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Leases):
            return NotImplemented
        return self.by_index() == other.by_index()  # equal neighbours may be one run or two

    def __hash__(self) -> int:
        raise TypeError("Leases are mutable")

    def __repr__(self) -> str:
        return f"Leases({self.by_index()})"

    def __iter__(self) -> Iterator[LeasedRun]:
        return map(LeasedRun, self._starts, self._stops, self._leases)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self.get(index) is not None

    def get(self, index: int) -> Lease | None:
        at = bisect_right(self._starts, index) - 1
        return self._leases[at] if at >= 0 and index < self._stops[at] else None

    def by_index(self) -> dict[int, Lease]:
        return {index: lease for start, stop, lease in self for index in range(start, stop)}

    def within(self, start: int, stop: int) -> list[LeasedRun]:
        """The parts that lie in ``[start, stop)``, ascending."""
        low, high = self._span(start, stop)
        if low == high:
            return []
        if high - low == 1:  # the usual case
            first, last = max(start, self._starts[low]), min(stop, self._stops[low])
            return [LeasedRun(first, last, self._leases[low])]
        columns = (self._starts[low:high], self._stops[low:high], self._leases[low:high])
        found = list(map(LeasedRun, *columns))
        found[0] = found[0]._replace(start=max(start, found[0].start))
        found[-1] = found[-1]._replace(stop=min(stop, found[-1].stop))
        return found

    def outside(self, start: int, stop: int) -> Iterator[Run]:
        """The parts of ``[start, stop)`` that are not in flight, ascending."""
        for leased in self.within(start, stop):
            if start < leased.start:
                yield start, leased.start
            start = leased.stop
        if start < stop:
            yield start, stop

    def covers(self, start: int, stop: int, epoch: int) -> bool:
        """Whether all of ``[start, stop)`` is in flight with this epoch."""
        at = bisect_right(self._starts, start) - 1
        while at >= 0 and at < len(self._starts) and self._starts[at] <= start < self._stops[at]:
            if self._leases[at].epoch != epoch:
                return False
            start = self._stops[at]
            if start >= stop:
                return True
            at += 1
        return False

    def put(self, start: int, stop: int, lease: Lease) -> None:
        """Lease messages that are not in flight."""
        at = bisect_left(self._starts, start)
        if at and self._stops[at - 1] == start and self._leases[at - 1] == lease:
            self._stops[at - 1] = stop
        else:
            self._insert(at, start, stop, lease)
        self._count += stop - start

    def take(self, start: int, stop: int) -> list[LeasedRun]:
        """Remove and return the leases in ``[start, stop)``."""
        taken = self.within(start, stop)
        self.drop(start, stop)
        return taken

    def drop(self, start: int, stop: int) -> None:
        """Remove the leases in ``[start, stop)``."""
        starts, stops, leases = self._starts, self._stops, self._leases
        low, high = self._span(start, stop)
        if low == high:
            return
        first, last = starts[low], stops[high - 1]
        if high - low == 1:  # the usual case
            if start <= first:
                if last <= stop:
                    del starts[low], stops[low], leases[low]
                    self._count -= last - first
                else:
                    starts[low] = stop
                    self._count -= stop - first
            elif last <= stop:
                stops[low] = start
                self._count -= last - start
            else:
                stops[low] = start
                self._insert(low + 1, stop, last, leases[low])
                self._count -= stop - start
            return
        leased = sum(stops[low:high]) - sum(starts[low:high])
        self._count -= leased - max(0, start - first) - max(0, last - stop)
        if first < start:
            stops[low] = start
            low += 1
        if stop < last:
            starts[high - 1] = stop
            high -= 1
        del starts[low:high], stops[low:high], leases[low:high]

    def _insert(self, at: int, start: int, stop: int, lease: Lease) -> None:
        self._starts.insert(at, start)
        self._stops.insert(at, stop)
        self._leases.insert(at, lease)

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """The positions ``low <= i < high`` of the runs that overlap ``[start, stop)``."""
        low = bisect_right(self._stops, start)
        return low, bisect_left(self._starts, stop, low)


class Attempts(NamedTuple):
    """What is known of a message that was delivered, came back and is not settled.

    `epoch` is that of the last lease if it ran out, so that a late ack still counts; otherwise 0.
    `reason` is from the last nack that gave one.
    """

    deliveries: int
    epoch: int
    reason: str

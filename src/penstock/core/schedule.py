"""Indexes that are due at a moment each: a delay that is over, an expiry."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

__all__ = ["Schedule"]


class Schedule:
    """`times` may be read and shortened by anybody; what is due later is noted with `add`.

    The invariant: each of the `times` is in the heap, from when it was added until it was given
    out. The heap may hold more, since nothing is ever searched for in it: a moment that is not in
    `times` any more is passed over when it comes.
    """

    __slots__ = ("heap", "times")

    def __init__(self, times: dict[int, int] | None = None) -> None:
        self.times: dict[int, int] = {} if times is None else times
        self.rewind()

    def rewind(self) -> None:
        """Give out all of them again, each when it is due."""
        self.heap = [(due_ns, index) for index, due_ns in self.times.items()]
        heapify(self.heap)

    def add(self, index: int, due_ns: int) -> None:
        self.times[index] = due_ns
        heappush(self.heap, (due_ns, index))

    def pop_due(self, now_ns: int) -> list[int]:
        """What is due and was not given out yet. It stays in `times`."""
        found: dict[int, None] = {}  # one that was dropped and added again is in the heap twice
        heap, times = self.heap, self.times
        while heap and heap[0][0] <= now_ns:
            due_ns, index = heappop(heap)
            if times.get(index) == due_ns:
                found[index] = None
        return list(found)

"""Indexes that are each due at some time: the end of a delay, or an expiry."""

from __future__ import annotations

from heapq import heapify, heappush

from penstock.core.due import take_due

__all__ = ["Schedule"]


class Schedule:
    """Anybody may read `times` and remove from it; new times go through `add`.

    The invariant: each of the `times` is in the heap from when it is added until `pop_due` returns
    it. The heap may hold more, since nothing is ever searched for in it: an entry that is no longer
    in `times` is skipped when it comes up.
    """

    __slots__ = ("heap", "times")

    def __init__(self, times: dict[int, int] | None = None) -> None:
        self.times: dict[int, int] = {} if times is None else times
        self.rewind()

    def rewind(self) -> None:
        """Make `pop_due` return all of them again, each when it is due."""
        self.heap = [(due_ns, index) for index, due_ns in self.times.items()]
        heapify(self.heap)

    def add(self, index: int, due_ns: int) -> None:
        self.times[index] = due_ns
        heappush(self.heap, (due_ns, index))

    def pop_due(self, now_ns: int) -> list[int]:
        """What is due and was not returned yet. It stays in `times`."""
        times = self.times
        due = take_due(self.heap, now_ns)
        # One that was removed and added again is in the heap twice.
        return list(dict.fromkeys(index for due_ns, index in due if times.get(index) == due_ns))

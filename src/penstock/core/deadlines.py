"""When the leases of a subscription end."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from penstock.core.lease import Lease
from penstock.core.runs import Run

__all__ = ["Deadlines"]


class Deadlines:
    """One entry a delivery, however many messages it has.

    The invariant: every lease that ends is in an entry of its epoch that comes no later than its
    deadline. Nothing is searched for in the heap, so there may be entries of leases that are over
    or were extended. `overdue` asks the leases themselves.
    """

    __slots__ = ("heap",)

    def __init__(self, leases: dict[int, Lease] | None = None) -> None:
        self.heap: list[tuple[int, int, list[Run]]] = [
            (lease.deadline_ns, lease.epoch, [(index, index + 1)])
            for index, lease in (leases or {}).items()
            if lease.deadline_ns is not None
        ]
        heapify(self.heap)

    def add(self, deadline_ns: int, epoch: int, runs: list[Run]) -> None:
        heappush(self.heap, (deadline_ns, epoch, runs))

    def overdue(self, leases: dict[int, Lease], now_ns: int) -> list[int]:
        """Indexes whose leases have run out. Forgets the entries it has looked at."""
        found: dict[int, None] = {}  # a lease that was extended has several entries
        heap = self.heap
        while heap and heap[0][0] <= now_ns:
            _, epoch, runs = heappop(heap)
            for start, stop in runs:
                for index in range(start, stop):
                    lease = leases.get(index)
                    if lease and lease.epoch == epoch and (lease.deadline_ns or 0) <= now_ns:
                        found[index] = None
        return list(found)

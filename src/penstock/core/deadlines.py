"""When the leases of a subscription end."""

from __future__ import annotations

from heapq import heapify, heappush

from penstock.core.due import take_due
from penstock.core.lease import Leases
from penstock.core.runs import Run

__all__ = ["Deadlines"]


class Deadlines:
    """A heap with an entry for each run of messages that were delivered together.

    The invariant: every lease with a deadline is in an entry of its epoch that is due no later than
    that deadline. Entries are never removed early, so some belong to leases that have ended or were
    extended; `overdue` therefore looks at the leases themselves.
    """

    __slots__ = ("heap",)

    def __init__(self, leases: Leases | None = None) -> None:
        # Of numbers alone, which is nothing to the garbage collector; there may be many.
        self.heap: list[tuple[int, int, int, int]] = [
            (lease.deadline_ns, lease.epoch, start, stop)
            for start, stop, lease in leases or ()
            if lease.deadline_ns is not None
        ]
        heapify(self.heap)

    def add(self, deadline_ns: int, epoch: int, runs: list[Run]) -> None:
        for start, stop in runs:
            heappush(self.heap, (deadline_ns, epoch, start, stop))

    def overdue(self, leases: Leases, now_ns: int) -> list[int]:
        """Indexes whose leases have run out. Removes the entries that were due."""
        found: dict[int, None] = {}  # an extended lease has several entries
        for _, epoch, first, end in take_due(self.heap, now_ns):
            for start, stop, lease in leases.within(first, end):
                ends_ns = lease.deadline_ns
                if lease.epoch == epoch and ends_ns is not None and ends_ns <= now_ns:
                    found.update(dict.fromkeys(range(start, stop)))
        return list(found)

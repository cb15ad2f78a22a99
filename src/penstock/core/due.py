"""Taking from a heap what is due by now."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop
from operator import itemgetter
from typing import TypeVar

__all__ = ["take_due"]

Entry = TypeVar("Entry", bound=tuple[int, ...])


def take_due(heap: list[Entry], now_ns: int) -> list[Entry]:
    """Remove the entries that begin with a time up to ``now_ns``, and return them in order."""
    due: list[Entry] = []
    # When much of a large heap is due, as when thousands were delayed until the same moment, it is
    # faster to sort it than to keep it a heap from one entry to the next.
    few = max(32, len(heap) // 8)
    while heap and heap[0][0] <= now_ns:
        if len(due) == few:
            heap.sort()
            stop = bisect_right(heap, now_ns, key=itemgetter(0))
            due += heap[:stop]
            del heap[:stop]  # what is left is sorted, and so it is a heap
            break
        due.append(heappop(heap))
    return due

"""What is due comes in order, and the rest stays a heap, however much of it is due."""

from __future__ import annotations

from heapq import heapify, heappop
from random import Random

import pytest

from penstock.core.due import take_due


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 500])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_as_much_as_is_due_is_taken(size: int, share: float) -> None:
    rng = Random(size)
    entries = [(rng.randrange(1000), number) for number in range(size)]
    now = round(share * 1000)
    heap = entries.copy()
    heapify(heap)
    # When it is taken
    assert take_due(heap, now) == sorted(entry for entry in entries if entry[0] <= now)
    # Then the others come out in order, too
    left = sorted(entry for entry in entries if entry[0] > now)
    assert [heappop(heap) for _ in left] == left
    assert heap == []

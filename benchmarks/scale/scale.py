"""How much each row does: the sizes that the bars are set for, and a short version of them."""

from __future__ import annotations

from dataclasses import dataclass

BATCH = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Sizes of one run. Only `FULL` is what the bars are set for."""

    rounds: int
    slices: int
    """How often the contenders take turns within a round."""
    slice_batches: int
    """Batches of a turn."""
    backlog: int
    small_backlog: int


FULL = Scale(rounds=3, slices=5, slice_batches=100, backlog=1_000_000, small_backlog=10_000)
QUICK = Scale(rounds=1, slices=1, slice_batches=20, backlog=20_000, small_backlog=2_000)

"""How much each row does: the sizes that the bars are set for, and a short version of them."""

from __future__ import annotations

from dataclasses import dataclass

BODY_BYTES = 256
CONNECTIONS = 32
"""Connections of a load on the service, and concurrent callers of a client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Sizes of one run. Only `FULL` is what the bars are set for."""

    rounds: int
    slices: int
    """How often the contenders take turns within a round."""
    slice_seconds: float
    paced_seconds: float
    """How long the load of constant rate goes on, in a round."""
    syncs: int
    """Timed syncs of the bare disk, before and again after that load."""
    worker_messages: int
    """What a queue holds at the start of a worker's turn."""


FULL = Scale(
    rounds=3, slices=2, slice_seconds=3.0, paced_seconds=8.0, syncs=500, worker_messages=40_000
)

QUICK = Scale(
    rounds=1, slices=1, slice_seconds=1.0, paced_seconds=1.0, syncs=50, worker_messages=3_000
)

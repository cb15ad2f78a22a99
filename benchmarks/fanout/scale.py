"""How much each row does: the sizes that the bars are set for, and a short version of them."""

from __future__ import annotations

from dataclasses import dataclass

BODY_BYTES = 256
CONCURRENCY = 32
TOPICS = 100
ENDPOINTS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Sizes of one run. Only `FULL` is what the bars are set for."""

    rounds: int
    singles: int
    """Messages that are published one at a time, each when the one before has arrived."""
    calls: int
    """Calls of a turn whose rate is taken."""
    paced: int
    """Messages that are published at a steady pace to many endpoints."""
    paced_seconds: float
    """Between two of them."""


FULL = Scale(rounds=5, singles=300, calls=10_000, paced=300, paced_seconds=0.02)
QUICK = Scale(rounds=1, singles=20, calls=500, paced=20, paced_seconds=0.02)

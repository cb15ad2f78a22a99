"""A delivery in flight, and what is remembered of one that came back."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Attempts", "Lease"]


class Lease(NamedTuple):
    """A delivery in flight. `deliveries` counts it too."""

    epoch: int
    deadline_ns: int | None
    deliveries: int


class Attempts(NamedTuple):
    """What is known of a message that was delivered, came back and is not settled.

    `epoch` is that of its last lease if that ran out, so that its late ack still counts; 0 else.
    """

    deliveries: int
    epoch: int
    reason: str

"""A delivery in flight, and what is remembered of one that came back."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Attempts", "Lease"]


class Lease(NamedTuple):
    """A delivery in flight. `deliveries` counts it too.

    `reason` is why the message came back before, as its last nack said.
    """

    epoch: int
    deadline_ns: int | None
    deliveries: int
    reason: str = ""


class Attempts(NamedTuple):
    """What is known of a message that was delivered, came back and is not settled.

    `epoch` is that of its last lease if that ran out, so that its late ack still counts; 0 else.
    `reason` is what the last nack that gave one said.
    """

    deliveries: int
    epoch: int
    reason: str

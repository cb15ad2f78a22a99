"""What became of one target of a batch of acks, nacks or extensions."""

from __future__ import annotations

from enum import Enum

__all__ = ["Outcome"]


class Outcome(Enum):
    """What became of one target of a batch."""

    DONE = "done"
    ALREADY_SETTLED = "already_settled"
    NOT_LEASED = "not_leased"  # stale: another delivery of it was made, or its lease ended
    NOT_FOUND = "not_found"

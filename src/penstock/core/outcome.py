"""The outcome of an ack, nack or extension."""

from __future__ import annotations

from enum import Enum

__all__ = ["Outcome"]


class Outcome(Enum):
    """What became of one target of a batch."""

    DONE = "done"
    ALREADY_SETTLED = "already_settled"
    NOT_LEASED = "not_leased"  # stale: it was delivered again, or its lease ended
    NOT_FOUND = "not_found"

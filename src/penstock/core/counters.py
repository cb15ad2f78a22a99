"""Counters of a subscription."""

from __future__ import annotations

import msgspec

__all__ = ["Counters"]


class Counters(msgspec.Struct):
    """How messages came and went since the subscription was created."""

    acked: int = 0
    dead_lettered: int = 0
    delivered: int = 0
    discarded: int = 0
    expired: int = 0
    leases_expired: int = 0
    nacked: int = 0
    purged: int = 0
    redelivered: int = 0
    replayed: int = 0
    returned: int = 0
    skipped: int = 0

    def add(self, way: str, count: int) -> None:
        setattr(self, way, getattr(self, way) + count)

"""Time that passes only when a test says so."""

from __future__ import annotations

from datetime import datetime, timedelta

from penstock.core.limits import NANOSECONDS
from penstock.core.message import to_datetime

__all__ = ["ManualClock"]

_START_NS = 1_767_225_600 * NANOSECONDS  # 2026-01-01


class ManualClock:
    """Begins at midnight of 2026-01-01, UTC."""

    def __init__(self) -> None:
        self._now_ns = _START_NS

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, seconds: float) -> None:
        self._now_ns += round(seconds * NANOSECONDS)

    @property
    def now(self) -> datetime:
        return to_datetime(self._now_ns)

    def later(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

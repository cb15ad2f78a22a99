"""Time, passed in."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since 1970."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ns(self) -> int:
        return time.time_ns()

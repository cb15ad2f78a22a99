"""Time, passed in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since 1970."""
        ...


class SystemClock:
    """The machine's own clock, which never goes back.

    If the machine's clock is set back, this one runs at half speed until the other has caught up:
    leases still end and delays still pass, however far ahead the clock had been.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._now = 0
        self._at = 0

    def now_ns(self) -> int:
        wall, at = self._wall_ns(), self._monotonic_ns()
        if wall < self._now:
            wall = self._now + (at - self._at) // 2
        self._now, self._at = wall, at
        return wall

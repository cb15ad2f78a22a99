"""Time that passes only when the simulator says so."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.core.limits import NANOSECONDS

_START_NS = 1_700_000_000 * NANOSECONDS


class VirtualClock(Clock):
    """Shared by the store and the clients, over every restart."""

    def __init__(self, start_ns: int = _START_NS) -> None:
        self._start_ns = self._now_ns = start_ns
        self.latest_ns = start_ns  # the latest time that it ever showed

    def now_ns(self) -> int:
        return self._now_ns

    @property
    def elapsed_seconds(self) -> float:
        return (self._now_ns - self._start_ns) / NANOSECONDS

    def advance(self, seconds: float) -> None:
        """Or set it back, if they are negative."""
        self._now_ns += round(seconds * NANOSECONDS)
        self.latest_ns = max(self.latest_ns, self._now_ns)

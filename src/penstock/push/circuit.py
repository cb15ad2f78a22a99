"""A circuit breaker: after repeated failures no call is made for a while, then one is tried."""

from __future__ import annotations

from typing import Literal

__all__ = ["Circuit"]


class Circuit:
    """Opens after ``threshold`` failures in a row, for a time that doubles with each failed try.

    Times are those of one monotonic clock, in seconds.
    """

    def __init__(
        self, *, threshold: int = 10, first_seconds: float = 1.0, most_seconds: float = 60.0
    ) -> None:
        self._threshold = threshold
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._openings = 0
        self.failures = 0
        self.open_until: float | None = None

    def state(self, now: float) -> Literal["closed", "open", "half_open"]:
        if self.open_until is None:
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def succeeded(self) -> None:
        self.failures = 0
        self._openings = 0
        self.open_until = None

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failures >= self._threshold and self.state(now) != "open":
            # While it is open, the calls that were already under way tell nothing new.
            seconds = self._first_seconds * 2.0 ** min(self._openings, 30)
            self._openings += 1
            self.open_until = now + min(seconds, self._most_seconds)

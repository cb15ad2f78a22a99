"""When a request is sent again, and after how long."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec

from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument, PenstockError

__all__ = ["Failure", "Retry"]

_PAUSES = Backoff(kind="exponential", base_seconds=0.1, max_seconds=5.0, jitter=0.5)


class Failure(NamedTuple):
    """One attempt that did not succeed.

    `is_transient`: another attempt may succeed. `may_be_done`: the server may have done what was
    asked all the same. `retry_after_seconds`: what the server asked for, if it did.
    """

    error: PenstockError
    is_transient: bool
    may_be_done: bool
    retry_after_seconds: float | None = None


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`attempts` counts the first one too: 1 never tries again.

    A request is repeated when another attempt may succeed and either it certainly was not done
    (no connection, a rate limit) or doing it twice is the same as doing it once: reads, publishes
    with a dedup key, settling by receipt.
    """

    attempts: int = 6
    backoff: Backoff = _PAUSES

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidArgument(f"attempts is {self.attempts}: use 1 or more")

    def delay_seconds(
        self, failure: Failure, attempt: int, *, is_repeatable: bool, rng: random.Random
    ) -> float | None:
        """The pause before the next attempt; None when there must be none."""
        if not failure.is_transient or attempt >= self.attempts:
            return None
        if failure.may_be_done and not is_repeatable:
            return None
        delay = self.backoff.delay_seconds(attempt, rng)
        if failure.retry_after_seconds is not None:
            # A server cannot make a caller wait longer than it would for any other reason.
            delay = max(delay, min(failure.retry_after_seconds, self.backoff.max_seconds))
        return delay

"""When a request is sent again, and how long to wait before."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec

from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument, PenstockError

__all__ = ["Failure", "Retry"]

_PAUSES = Backoff(kind="exponential", base_seconds=0.1, max_seconds=5.0, jitter=0.5)


class Failure(NamedTuple):
    """An attempt that did not succeed.

    - `is_transient`: another attempt may succeed.
    - `may_be_done`: the server may have done it all the same.
    - `retry_after_seconds`: how long the server asked us to wait, if it did.
    """

    error: PenstockError
    is_transient: bool
    may_be_done: bool
    retry_after_seconds: float | None = None


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`attempts` includes the first one: with 1, nothing is tried again.

    A request is repeated when another attempt may succeed and either it was certainly not done
    (no connection, a limit), or doing it twice is the same as doing it once: reads, publishes
    with an idempotency key, settling by receipt.
    """

    attempts: int = 6
    backoff: Backoff = _PAUSES

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidArgument(f"attempts is {self.attempts}: use 1 or more")

    def delay_seconds(
        self, failure: Failure, attempt: int, *, is_repeatable: bool, rng: random.Random
    ) -> float | None:
        """The pause before the next attempt; None when there is to be none."""
        if not failure.is_transient or attempt >= self.attempts:
            return None
        if failure.may_be_done and not is_repeatable:
            return None
        delay = self.backoff.delay_seconds(attempt, rng)
        if failure.retry_after_seconds is not None:
            # A server cannot make us wait longer than we would for any other reason.
            delay = max(delay, min(failure.retry_after_seconds, self.backoff.max_seconds))
        return delay

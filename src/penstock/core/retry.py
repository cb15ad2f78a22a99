"""How long a message waits before it is delivered again."""

from __future__ import annotations

import math
import random
from typing import Literal

import msgspec

from penstock.errors import InvalidArgument

__all__ = ["Backoff"]


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The wait between a failed delivery and the next one.

    - `fixed`: `base_seconds` each time. `exponential`: `base_seconds`, then `factor` times longer
      with each attempt, up to `max_seconds`.
    - `jitter` shortens the wait at random, by up to this fraction of it, so that messages that
      failed together do not come back together: 0 is not at all, 1 is by up to the whole wait.

    The default does not wait. Raises `InvalidArgument` for a value out of its range.
    """

    kind: Literal["fixed", "exponential"] = "fixed"
    base_seconds: float = 0.0
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "exponential"):
            raise InvalidArgument(
                f"the backoff's kind is {self.kind!r}: use 'fixed' or 'exponential'"
            )
        _check_number("base_seconds", self.base_seconds, 0.0)
        _check_number("factor", self.factor, 1.0)
        _check_number("max_seconds", self.max_seconds, 0.0)
        _check_number("jitter", self.jitter, 0.0, 1.0)
        if self.base_seconds > self.max_seconds:
            raise InvalidArgument(
                f"the backoff's base_seconds {self.base_seconds} exceeds its max_seconds "
                f"{self.max_seconds}: raise max_seconds or lower base_seconds"
            )

    def delay_seconds(self, attempt: int, rng: random.Random) -> float:
        """The wait after delivery number `attempt` (from 1) failed; 0 to `max_seconds`.

        Without jitter it never shrinks as `attempt` grows. Takes one number from `rng` if there
        is a wait to jitter, none otherwise.
        """
        if attempt < 1:
            raise InvalidArgument(f"the attempt is {attempt}: deliveries are counted from 1")
        delay = self._delay_before_jitter(attempt)
        if delay and self.jitter:
            delay *= 1.0 - self.jitter * rng.random()
        return delay

    def _delay_before_jitter(self, attempt: int) -> float:
        if self.kind == "fixed" or not self.base_seconds:
            return float(self.base_seconds)
        try:
            # A float power overflows at once where an int power would fill the memory.
            delay = self.base_seconds * float(self.factor) ** (attempt - 1)
        except OverflowError:
            return float(self.max_seconds)
        return min(delay, float(self.max_seconds))


def _check_number(name: str, value: object, low: float, high: float = math.inf) -> None:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not low <= value <= high
        or math.isinf(value)
    ):
        limits = f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
        raise InvalidArgument(
            f"the backoff's {name} is {value!r}: it must be a finite number {limits}"
        )

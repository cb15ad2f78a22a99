"""What users may set on a queue and on a subscription."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument

__all__ = ["DEFAULT_SUBSCRIPTION", "QueueConfig", "SubscriptionConfig"]

DEFAULT_SUBSCRIPTION = "default"

# 285 years in seconds: the most that fits into nanoseconds of 64 bits.
_MAX_SECONDS = 9_000_000_000


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value <= _MAX_SECONDS:
        raise InvalidArgument(f"{name} is {value}: use a number above 0, or leave it out")


def _check_types(config: msgspec.Struct) -> None:
    """A struct takes whatever it is given; decoding one does not."""
    try:
        msgspec.convert(msgspec.structs.asdict(config), type(config))
    except msgspec.ValidationError as exc:
        raise InvalidArgument(f"a setting has the wrong type: {exc}") from exc


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue.

    - `fifo`: messages of one group key are delivered one after the other.
    - `max_messages`, `max_bytes`: the bound. A publish is refused with ``queue_full`` when it
      would leave any subscription with more than this unsettled.
    - `retention_seconds`, `retention_messages`, `retention_bytes`: how much history is kept; what
      exceeds any of them is removed from the front. Unsettled messages are kept all the same,
      unless `retain_unsettled` is off: then they are settled as expired.
    - `message_ttl_seconds`: a message that nobody settled by this age expires.
    - `dedup_window_seconds`: how long a dedup key is remembered.
    """

    fifo: bool = False
    max_messages: int | None = None
    max_bytes: int | None = None
    retention_seconds: float | None = 86_400
    retention_messages: int | None = None
    retention_bytes: int | None = None
    retain_unsettled: bool = True
    message_ttl_seconds: float | None = None
    dedup_window_seconds: float = 300

    def check(self) -> None:
        """Raises `InvalidArgument`."""
        _check_types(self)
        for name in (
            "max_messages",
            "max_bytes",
            "retention_seconds",
            "message_ttl_seconds",
        ):
            _check_positive(name, getattr(self, name))
        for name in ("retention_messages", "retention_bytes", "dedup_window_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= _MAX_SECONDS**2:
                raise InvalidArgument(f"{name} is {value}: use 0 or more, or leave it out")


class SubscriptionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a subscription.

    - `filter`: a CEL expression; None takes every message. It cannot be altered.
    - `after`: the subscriptions that must have taken a message first.
    - `on_dead_parent`: what a dead letter of one of those means here. ``hold`` waits until its
      replay is acked or an operator releases it, ``cascade`` makes it a dead letter here too,
      ``ignore`` goes on as if it had been acked.
    - `lease_seconds`: how long a delivery is in flight; None is until it is settled or asked for.
    - `max_in_flight`: no more than this many deliveries at once.
    - `max_deliveries`: a message that failed this often becomes a dead letter; None never.
    - `backoff`: the pause before a message that was nacked is delivered again.
    - `paused`: nothing is delivered.
    """

    filter: str | None = None
    after: tuple[str, ...] = ()
    on_dead_parent: Literal["hold", "cascade", "ignore"] = "hold"
    lease_seconds: float | None = 30
    max_in_flight: int = 100_000
    max_deliveries: int | None = 5
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    paused: bool = False

    def check(self) -> None:
        """Raises `InvalidArgument`."""
        _check_types(self)
        _check_positive("lease_seconds", self.lease_seconds)
        _check_positive("max_in_flight", self.max_in_flight)
        _check_positive("max_deliveries", self.max_deliveries)
        if self.on_dead_parent not in ("hold", "cascade", "ignore"):
            raise InvalidArgument(
                f"on_dead_parent is {self.on_dead_parent!r}: use hold, cascade or ignore"
            )

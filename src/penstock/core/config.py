"""The settings of a queue and of a subscription, and checks for values from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from penstock.core.callback import CALLBACK_BACKOFF, Callback
from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument

__all__ = [
    "DEFAULT_SUBSCRIPTION",
    "QueueConfig",
    "SubscriptionConfig",
    "check_list",
    "check_seconds",
    "check_text",
    "check_whole",
]

DEFAULT_SUBSCRIPTION = "default"

# 285 years: about the most that fits into 64 bits of nanoseconds.
_MAX_SECONDS = 9_000_000_000


# The largest count that the log can store.
_MAX_COUNT = 2**63 - 1


def check_whole(name: str, value: object, least: int | None = None) -> None:
    """Raises `InvalidArgument` unless it is an int: a float or bool would not be read back."""
    if type(value) is not int or (least is not None and value < least):
        wanted = "a whole number" if least is None else f"a whole number, {least} or more"
        raise InvalidArgument(f"{name} is {value!r}: use {wanted}")


def check_seconds(
    name: str, value: object, *, zero: bool = False, most: float = 1_000_000_000
) -> None:
    """Raises `InvalidArgument` unless it is a number above 0 (``zero``: or 0), at most ``most``."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= most
        or not (value or zero)
    ):
        wanted = "0 or more" if zero else "a number above 0"
        raise InvalidArgument(f"{name} is {value!r}: use {wanted}, {most:.0e} at most")


def check_text(name: str, value: object) -> str:
    """The text as a plain str. Raises `InvalidArgument` if it cannot be encoded as UTF-8."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}: use a text")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise InvalidArgument(
            f"{name} holds characters that cannot be encoded as UTF-8: leave them out"
        ) from exc
    return str.__str__(value)  # the log does not accept a subclass of str


def check_list(name: str, values: object, of: str) -> Sequence[Any]:
    """The values as a sequence. Raises `InvalidArgument` for a single value outside of a list."""
    if type(values) is list or type(values) is tuple:
        return values
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{name} is one {type(values).__name__}: pass a list of {of}")
    return tuple(values)


def _check_optional_seconds(name: str, value: float | None) -> None:
    if value is not None:
        check_seconds(name, value, most=_MAX_SECONDS)


def _check_count(name: str, value: int | None, least: int) -> None:
    if value is not None and not least <= value <= _MAX_COUNT:
        raise InvalidArgument(f"{name} is {value}: use {least} or more, or leave it out")


def _check_types(config: msgspec.Struct) -> None:
    """Constructing a struct does not check types; converting to one does."""
    try:
        msgspec.convert(msgspec.structs.asdict(config), type(config))
    except msgspec.ValidationError as exc:
        raise InvalidArgument(f"a setting has the wrong type: {exc}") from exc


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue.

    - `fifo`: messages of one group key are delivered one after the other.
    - `max_messages`: the bound. A publish is refused with ``queue_full`` when it would leave any
      subscription with more messages than this unsettled.
    - `max_bytes`: the bound in bytes, by which a publish is refused in the same way. It counts
      everything published since the oldest unsettled message, settled or not, in whole publish
      batches: one message that nobody settles keeps the bytes of all that follow it counted.
    - `retention_seconds`: how long messages are kept.
    - `retention_messages`: how many messages are kept; the oldest of more are removed.
    - `retention_bytes`: how many bytes of messages are kept; the oldest of more are removed.
    - `retain_unsettled`: what a subscription still needs is kept, whatever the three above say. If
      this is off, that is settled as expired.
    - `message_ttl_seconds`: a message that is still unsettled at this age expires.
    - `dedup_window_seconds`: how long a dedup key is remembered.
    - `events`: what happens to its messages is published in the queue ``<queue>-events``.
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
    events: bool = False

    def check(self) -> None:
        """Raises `InvalidArgument`."""
        _check_types(self)
        _check_count("max_messages", self.max_messages, 1)
        _check_count("max_bytes", self.max_bytes, 1)
        _check_count("retention_messages", self.retention_messages, 0)
        _check_count("retention_bytes", self.retention_bytes, 0)
        _check_optional_seconds("retention_seconds", self.retention_seconds)
        _check_optional_seconds("message_ttl_seconds", self.message_ttl_seconds)
        check_seconds(
            "dedup_window_seconds", self.dedup_window_seconds, zero=True, most=_MAX_SECONDS
        )


class SubscriptionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a subscription.

    - `filter`: a CEL expression; None takes every message. It cannot be altered.
    - `after`: the subscriptions that must have taken a message first.
    - `on_dead_parent`: what happens here when a subscription in `after` dead-letters a message.
      ``hold`` waits until its replay is acked or an operator releases it, ``cascade`` makes it a
      dead letter here too, ``ignore`` goes on as if it had been acked.
    - `lease_seconds`: how long a delivery is in flight; None: until settled or asked for again.
    - `max_in_flight`: how many deliveries may be in flight at once.
    - `max_deliveries`: a message that failed this often becomes a dead letter; None: never.
    - `backoff`: the pause before a nacked message is delivered again.
    - `paused`: nothing is delivered.
    - `callback`: messages are sent to a URL, or announced there. If they are sent, a `backoff` that
      does not wait becomes `CALLBACK_BACKOFF`, and with `ordered` the `max_in_flight` becomes 1.
    """

    filter: str | None = None
    after: tuple[str, ...] = ()
    on_dead_parent: Literal["hold", "cascade", "ignore"] = "hold"
    lease_seconds: float | None = 30
    max_in_flight: int = 100_000
    max_deliveries: int | None = 5
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    paused: bool = False
    callback: Callback | None = None

    def __post_init__(self) -> None:
        after: object = self.after
        if isinstance(after, list):
            msgspec.structs.force_setattr(self, "after", tuple(after))
        callback = self.callback
        if isinstance(callback, Callback) and callback.mode == "deliver":
            if self.backoff == Backoff():
                msgspec.structs.force_setattr(self, "backoff", CALLBACK_BACKOFF)
            if callback.is_serial:
                msgspec.structs.force_setattr(self, "max_in_flight", 1)

    @property
    def is_ordered(self) -> bool:
        """Whether a message that failed holds back all later ones until it is redelivered."""
        return self.callback is not None and self.callback.is_serial

    def check(self) -> None:
        """Raises `InvalidArgument`."""
        if type(self.after) is not tuple:
            raise InvalidArgument(f"after is {self.after!r}: pass a list of subscriptions' names")
        if type(self.backoff) is not Backoff:
            raise InvalidArgument(f"backoff is {self.backoff!r}: pass a Backoff")
        if self.callback is not None and type(self.callback) is not Callback:
            raise InvalidArgument(f"callback is {self.callback!r}: pass a Callback")
        _check_types(self)
        texts = [*self.after, self.filter, self.on_dead_parent]
        if self.callback is not None:
            _check_types(self.callback)
            self.callback.check()
            texts += [self.callback.url, self.callback.mode]
        for name in texts:
            if name is not None and type(name) is not str:
                # A subclass of str passes every check, and then cannot be written.
                raise InvalidArgument(f"{name!r} is a {type(name).__name__}: use a plain str")
        _check_optional_seconds("lease_seconds", self.lease_seconds)
        _check_count("max_in_flight", self.max_in_flight, 1)
        _check_count("max_deliveries", self.max_deliveries, 1)
        if self.on_dead_parent not in ("hold", "cascade", "ignore"):
            raise InvalidArgument(
                f"on_dead_parent is {self.on_dead_parent!r}: use hold, cascade or ignore"
            )

"""Messages: as producers publish them, as the log keeps them, as consumers get them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from penstock.core.config import check_text
from penstock.core.limits import (
    MAX_BODY_BYTES,
    MAX_ENVELOPE_BYTES,
    MAX_PRIORITY,
)
from penstock.core.receipt import receipt_text
from penstock.errors import InvalidArgument, MessageTooLarge

__all__ = [
    "DeadLetter",
    "Delivery",
    "Envelope",
    "Message",
    "NewMessage",
    "PublishedMessage",
    "ViewedMessage",
    "message_id",
    "parse_message_id",
    "to_datetime",
    "to_nanoseconds",
    "without_state",
]

DEFAULT_CONTENT_TYPE = "application/octet-stream"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INDEX_LOW_BITS = 30
_SALT_BITS = 32
_MILLISECONDS = 1_000_000


def to_datetime(time_ns: int) -> datetime:
    """An aware datetime, to the microsecond."""
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


def to_nanoseconds(moment: datetime) -> int:
    """Nanoseconds since 1970. Raises `InvalidArgument` if it has no zone or exceeds 64 bits."""
    if not isinstance(moment, datetime):
        raise InvalidArgument(f"the time {moment!r} is a {type(moment).__name__}: pass a datetime")
    if moment.utcoffset() is None:
        raise InvalidArgument(
            f"the time {moment.isoformat()} has no zone: pass an aware datetime, "
            "for example datetime.now(UTC)"
        )
    # In integers: a float of seconds would lose the last digits.
    delta = moment - _EPOCH
    time_ns = ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1000
    if not -(2**63) <= time_ns < 2**63:
        raise InvalidArgument(
            f"the time {moment.isoformat()} is out of reach: use one from 1678 to 2261"
        )
    return time_ns


def message_id(created_ns: int, index: int, salt: int) -> str:
    """A UUIDv7. Of its 74 free bits, 42 carry the index and 32 the queue's salt.

    So ids sort by time and then by index, and a message is found by its id without a map.
    """
    return _id_form(created_ns // _MILLISECONDS, index >> 16, salt) % (index & 0xFFFF)


@lru_cache(maxsize=1024)
def _id_form(milliseconds: int, high: int, salt: int) -> str:
    """An id without the low digits of the index, which messages published together share."""
    time = f"{milliseconds >> 16 & 0xFFFF_FFFF:08x}-{milliseconds & 0xFFFF:04x}"
    index = f"{0x7000 | high >> _INDEX_LOW_BITS - 16:04x}-{0x8000 | high & 0x3FFF:04x}-%04x"
    return f"{time}-{index}{salt:08x}"


class ParsedId(msgspec.Struct, frozen=True):
    created_ms: int
    index: int
    salt: int


def parse_message_id(text: str) -> ParsedId | None:
    """What an id carries; None if it is not a UUIDv7."""
    digits = text.replace("-", "")
    if len(text) != 36 or len(digits) != 32:
        return None
    try:
        number = int(digits, 16)
    except ValueError:
        return None
    if (number >> 76) & 0xF != 7 or (number >> 62) & 0b11 != 0b10:
        return None
    high = number >> 64 & 0xFFF
    low = number >> _SALT_BITS & (1 << _INDEX_LOW_BITS) - 1
    return ParsedId(number >> 80, high << _INDEX_LOW_BITS | low, number & (1 << _SALT_BITS) - 1)


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Everything of a message but its body. Defaults take no space on disk."""

    content_type: str = msgspec.field(default=DEFAULT_CONTENT_TYPE, name="c")
    attributes: dict[str, str] = msgspec.field(default_factory=dict, name="a")
    topic: str | None = msgspec.field(default=None, name="t")
    priority: int = msgspec.field(default=0, name="p")
    not_before_ns: int | None = msgspec.field(default=None, name="n")
    expires_at_ns: int | None = msgspec.field(default=None, name="e")
    group_key: str | None = msgspec.field(default=None, name="g")
    dedup_key: str | None = msgspec.field(default=None, name="d")

    def encode(self) -> bytes:
        return _encoder.encode(self)

    @staticmethod
    def decode(data: bytes | memoryview) -> Envelope:
        return _decoder.decode(data) if data else PLAIN


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)
PLAIN = Envelope()


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to publish.

    `priority` is 0 to 10, higher first. `not_before` delays the first delivery; at `expires_at`,
    a later time, the message expires if it is not settled by then. On a FIFO queue, messages with
    the same `group_key` are delivered one after the other. A second message with the same
    `dedup_key` within the queue's window is not stored; its publish is answered with the first
    one's index and id.
    """

    body: bytes
    content_type: str = DEFAULT_CONTENT_TYPE
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    topic: str | None = None
    priority: int = 0
    not_before: datetime | None = None
    expires_at: datetime | None = None
    group_key: str | None = None
    dedup_key: str | None = None

    def envelope(self) -> Envelope:
        """The checked envelope; `PLAIN` itself if nothing is set. Raises `InvalidArgument`."""
        if (
            self.topic is None
            and self.not_before is None
            and self.expires_at is None
            and self.group_key is None
            and self.dedup_key is None
            and self.content_type is DEFAULT_CONTENT_TYPE
            and type(self.priority) is int
            and not self.priority
            and type(self.attributes) is dict
            and not self.attributes
        ):
            return PLAIN
        envelope = self._checked_envelope()
        return PLAIN if envelope == PLAIN else envelope

    def _checked_envelope(self) -> Envelope:
        priority = self.priority
        if type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
            raise InvalidArgument(f"priority is {priority!r}: use 0 to {MAX_PRIORITY}")
        due_ns = None if self.not_before is None else to_nanoseconds(self.not_before)
        expires_ns = None if self.expires_at is None else to_nanoseconds(self.expires_at)
        if due_ns is not None and expires_ns is not None and expires_ns <= due_ns:
            raise InvalidArgument(
                "a message would expire before it is due, and never be delivered: "
                "choose an earlier not_before or a later expires_at"
            )
        return Envelope(
            content_type=_plain_text("content_type", self.content_type),
            attributes=_plain_texts(self.attributes),
            topic=_optional_text("topic", self.topic),
            priority=priority,
            not_before_ns=due_ns,
            expires_at_ns=expires_ns,
            group_key=_optional_text("group_key", self.group_key),
            dedup_key=_optional_text("dedup_key", self.dedup_key),
        )


def _plain_text(name: str, value: object) -> str:
    # Encoding the envelope will show whether a str can be encoded.
    return value if type(value) is str else check_text(name, value)


def _optional_text(name: str, value: object) -> str | None:
    """An empty text counts as None."""
    return None if value is None else _plain_text(name, value) or None


def _plain_texts(attributes: object) -> dict[str, str]:
    """A checked copy, which the caller cannot change any more."""
    if not isinstance(attributes, Mapping):
        raise InvalidArgument(f"attributes are {attributes!r}: pass a dict of texts")
    copy = dict(attributes)
    for key, text in copy.items():
        if type(key) is not str or type(text) is not str:
            return {
                check_text("the name of an attribute", key): check_text(f"attribute {key!r}", text)
                for key, text in copy.items()
            }
    return copy


def check_body(body: object) -> None:
    """Raises `InvalidArgument` or `MessageTooLarge`."""
    if not isinstance(body, bytes):
        raise InvalidArgument(f"a body is {type(body).__name__}: pass bytes")
    if len(body) > MAX_BODY_BYTES:
        raise MessageTooLarge(
            f"a body has {len(body)} bytes, the limit is {MAX_BODY_BYTES}: "
            "store the content elsewhere and send a reference"
        )


def encode_envelope(envelope: Envelope) -> bytes:
    """Raises `MessageTooLarge`, or `InvalidArgument` for a text with lone surrogates."""
    try:
        data = envelope.encode()
    except UnicodeEncodeError as exc:
        raise InvalidArgument("a text holds characters that cannot be encoded as UTF-8") from exc
    if len(data) > MAX_ENVELOPE_BYTES:
        raise MessageTooLarge(
            f"attributes and keys take {len(data)} bytes, the limit is {MAX_ENVELOPE_BYTES}: "
            "put them into the body"
        )
    return data


class PublishedMessage(msgspec.Struct, frozen=True):
    """Where a published message is. A `duplicate` was stored before, with the same key."""

    index: int
    id: str
    duplicate: bool = False

    @property
    def created_at_ns(self) -> int:
        """Rounded down to the millisecond, because it comes from the id."""
        return int(self.id[:8] + self.id[9:13], 16) * _MILLISECONDS


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is in a dead-letter queue. `index` is its index in the queue it came from."""

    queue: str
    subscription: str
    index: int
    deliveries: int
    reason: str
    failed_at_ns: int

    @property
    def failed_at(self) -> datetime:
        return to_datetime(self.failed_at_ns)


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as the log keeps it. A dead letter has the id of the message that failed."""

    queue: str
    index: int
    created_at_ns: int
    salt: int
    body: bytes
    envelope: Envelope
    dead_letter: DeadLetter | None

    @property
    def id(self) -> str:
        index = self.dead_letter.index if self.dead_letter else self.index
        return message_id(self.created_at_ns, index, self.salt)

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created_at_ns)

    @property
    def text(self) -> str | None:
        """The body as text; None when it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            return None

    def json(self) -> Any:
        """The body as a JSON value. Raises `msgspec.DecodeError` when it is not JSON."""
        return msgspec.json.decode(self.body)

    @property
    def content_type(self) -> str:
        return self.envelope.content_type

    @property
    def attributes(self) -> dict[str, str]:
        """A copy, because the envelope may be shared with other messages and consumers."""
        return self.envelope.attributes.copy()

    @property
    def topic(self) -> str | None:
        return self.envelope.topic

    @property
    def priority(self) -> int:
        return self.envelope.priority

    @property
    def group_key(self) -> str | None:
        return self.envelope.group_key

    @property
    def dedup_key(self) -> str | None:
        return self.envelope.dedup_key

    @property
    def not_before(self) -> datetime | None:
        time_ns = self.envelope.not_before_ns
        return None if time_ns is None else to_datetime(time_ns)

    @property
    def expires_at(self) -> datetime | None:
        time_ns = self.envelope.expires_at_ns
        return None if time_ns is None else to_datetime(time_ns)


class Delivery(Message, frozen=True, gc=False):
    """A message in flight. If it is not settled before `deadline`, it is redelivered.

    `deliveries` includes this one. Without a deadline it is redelivered only on request.
    """

    subscription_id: int
    epoch: int
    deliveries: int
    deadline_ns: int | None

    @property
    def receipt(self) -> str:
        """A text that names this delivery, to settle it from elsewhere."""
        return receipt_text(self.subscription_id, self.index, self.epoch)

    @property
    def deadline(self) -> datetime | None:
        return None if self.deadline_ns is None else to_datetime(self.deadline_ns)


class ViewedMessage(Message, frozen=True, gc=False):
    """A message, and its state for a subscription. `leased_until` is None if it is not leased."""

    is_settled: bool
    deliveries: int
    leased_until_ns: int | None

    @classmethod
    def of(
        cls, message: Message, *, is_settled: bool, deliveries: int, leased_until_ns: int | None
    ) -> ViewedMessage:
        return cls(
            message.queue,
            message.index,
            message.created_at_ns,
            message.salt,
            message.body,
            message.envelope,
            message.dead_letter,
            is_settled,
            deliveries,
            leased_until_ns,
        )

    @property
    def leased_until(self) -> datetime | None:
        return None if self.leased_until_ns is None else to_datetime(self.leased_until_ns)


def without_state(viewed: ViewedMessage) -> Message:
    """Just the message."""
    return Message(
        viewed.queue,
        viewed.index,
        viewed.created_at_ns,
        viewed.salt,
        viewed.body,
        viewed.envelope,
        viewed.dead_letter,
    )

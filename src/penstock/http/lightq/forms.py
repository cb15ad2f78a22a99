"""What LightQ's requests hold, and what its answers look like.

Whatever is wrong with a request raises `InvalidArgument`. Times in answers have no zone, as the
documents show them; they are UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from penstock.core.dead_letters import MAX_DELIVERIES_REASON
from penstock.core.limits import MAX_PRIORITY, NANOSECONDS, check_name
from penstock.core.message import (
    DEFAULT_CONTENT_TYPE,
    PLAIN,
    Envelope,
    Message,
    NewMessage,
    PublishedMessage,
    ViewedMessage,
)
from penstock.core.publishing import NewBatch, prepare
from penstock.errors import InvalidArgument
from penstock.http.exchange import IncomingRequest

__all__ = [
    "StoredForm",
    "check_content",
    "content_of",
    "decode_texts",
    "group_of",
    "id_of",
    "letter_form",
    "message_count",
    "new_message",
    "plain_batch",
    "pushed_form",
    "query_number",
    "stored_form",
    "viewed_form",
]

_OCTETS = DEFAULT_CONTENT_TYPE.encode()


# Requests.


def group_of(request: IncomingRequest) -> str:
    value = request.first.get(b"consumergroup")
    if value is None:
        raise InvalidArgument("the header consumerGroup is missing: name the group in it")
    return check_name(value.decode("latin-1"), "consumerGroup")


def id_of(request: IncomingRequest) -> str:
    value = request.parameter("id")
    if not value:
        raise InvalidArgument("the parameter id is missing")
    return value


def query_number(
    request: IncomingRequest, name: str, default: int | None, *, low: int, high: int
) -> int:
    """A parameter without a default must be given."""
    value = request.parameter(name)
    if value is None:
        if default is None:
            raise InvalidArgument(f"the parameter {name} is missing")
        return default
    return _number(name, value, low, high)


def message_count(request: IncomingRequest, limit: int) -> int:
    """From the header messageCount; the limit if it is absent."""
    value = request.first.get(b"messagecount")
    if value is None:
        return limit
    return _number("messageCount", value.decode("latin-1"), 1, limit)


def _number(name: str, value: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10 and low <= int(value) <= high):
        raise InvalidArgument(f"{name} is {value[:40]!r}: use {low} to {high}")
    return int(value)


def content_of(body: bytes) -> str:
    """The content of one message: text that is not blank."""
    try:
        return check_content(body.decode())
    except UnicodeDecodeError:
        raise InvalidArgument("the content is not UTF-8") from None


def check_content(content: str) -> str:
    if not content.strip():
        raise InvalidArgument("the content is blank")
    return content


def decode_texts(body: bytes) -> list[str]:
    """Contents or ids, as a JSON array."""
    try:
        return msgspec.json.decode(body, type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidArgument(f"the body is not a JSON array of strings: {exc}") from None


def plain_batch(request: IncomingRequest, body: bytes) -> NewBatch:
    """A batch of one message that has nothing but a content type, as nearly all do."""
    content_type = request.first.get(b"content-type") or _OCTETS
    envelope, head = _envelope_of(content_type)
    if not head:
        return NewBatch([body], None, None, len(body))
    return NewBatch([body], [envelope], [head], len(body) + len(head))


@lru_cache(maxsize=256)
def _envelope_of(content_type: bytes) -> tuple[Envelope, bytes]:
    batch = prepare([NewMessage(body=b"", content_type=content_type.decode("latin-1"))])
    return (batch.envelopes or [PLAIN])[0], (batch.heads or [b""])[0]


def new_message(request: IncomingRequest, body: bytes) -> NewMessage:
    """With the content type, priority and schedule that the headers give."""
    priority = request.first.get(b"priority")
    scheduled = request.first.get(b"scheduledat")
    content_type = request.first.get(b"content-type")
    return NewMessage(
        body=body,
        content_type=content_type.decode("latin-1") if content_type else DEFAULT_CONTENT_TYPE,
        priority=(
            0
            if priority is None
            else _number("priority", priority.decode("latin-1"), 0, MAX_PRIORITY)
        ),
        not_before=None if scheduled is None else _time(scheduled.decode("latin-1")),
    )


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"scheduledAt is {text[:40]!r}: use ISO 8601") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Answers.


class StoredForm(msgspec.Struct, rename="camel"):
    """A message, as push and pop answer it."""

    id: str
    content: str
    created_at: str | None
    priority: int


def pushed_form(published: PublishedMessage, content: str, priority: int) -> StoredForm:
    return StoredForm(published.id, content, _moment(published.created_at_ns), priority)


def stored_form(message: Message) -> StoredForm:
    content = message.body.decode("utf-8", "replace")
    return StoredForm(message.id, content, _moment(message.created_at_ns), message.priority)


def viewed_form(group: str, viewed: ViewedMessage) -> dict[str, object]:
    return {
        **msgspec.to_builtins(stored_form(viewed)),
        "consumerGroup": group,
        "consumed": viewed.is_settled,
        # Only an archive still knows the count of a settled message.
        "deliveryCount": viewed.deliveries or (None if viewed.is_settled else 0),
        "reservedUntil": _moment(viewed.leased_until_ns),
    }


def letter_form(group: str, message: Message) -> dict[str, object]:
    letter = message.dead_letter
    assert letter is not None
    return {
        **msgspec.to_builtins(stored_form(message)),
        "consumerGroup": group,
        "deliveryCount": letter.deliveries,
        "failedAt": _moment(letter.failed_at_ns),
        "dlqReason": MAX_DELIVERIES_REASON,
        "lastReason": letter.reason,
    }


def _moment(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    second, nanoseconds = divmod(time_ns, NANOSECONDS)
    milliseconds = nanoseconds // 1_000_000
    return f"{_second(second)}.{milliseconds:03}" if milliseconds else _second(second)


@lru_cache
def _second(time: int) -> str:
    # Many messages share one.
    return datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat()

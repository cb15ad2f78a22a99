"""A message as JSON, as a client gets it: stored, in flight, or with its state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.core.message import (
    PLAIN,
    DeadLetter,
    Delivery,
    Envelope,
    Message,
    ViewedMessage,
    message_id,
    to_datetime,
)
from penstock.storage.block import Chunk

__all__ = [
    "DeadLetterJson",
    "DeliveryJson",
    "MessageJson",
    "MessagePage",
    "ViewedJson",
    "chunk_json",
    "delivery_json",
    "letter_json",
    "message_json",
    "viewed_json",
]


class DeadLetterJson(msgspec.Struct, kw_only=True):
    """Where a dead letter comes from, and why it is one."""

    queue: str
    subscription: str
    index: int
    deliveries: int
    reason: str
    failed_at: datetime


class MessageJson(msgspec.Struct, kw_only=True):
    """A message. It has `body` if that is UTF-8, and `body_base64` if not."""

    index: int
    id: str
    body: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    content_type: str
    attributes: dict[str, str]
    topic: str | None
    priority: int
    group_key: str | None
    dedup_key: str | None
    not_before: datetime | None
    expires_at: datetime | None
    created_at: datetime
    dead_letter: DeadLetterJson | None = None


class DeliveryJson(MessageJson, kw_only=True):
    """A message in flight until `deadline` (null: until it is settled). `deliveries` counts it."""

    receipt: str
    deliveries: int
    deadline: datetime | None


class ViewedJson(MessageJson, kw_only=True):
    """A message, and its state for a subscription. `leased_until` is null if it is not leased."""

    is_settled: bool
    deliveries: int
    leased_until: datetime | None


class MessagePage(msgspec.Struct, kw_only=True):
    """`next` is what to pass as `start` for the rest; null at the end."""

    messages: list[MessageJson]
    next: int | None


def message_json(message: Message) -> MessageJson:
    return MessageJson(**_fields(message))


def chunk_json(chunk: Chunk, *, include_body: bool) -> list[MessageJson]:
    """Takes a while if there are many, so call it in a thread."""
    forms = []
    for block in chunk.blocks:
        bodies = block.each_body() if include_body else [None] * len(block.sizes)
        for at, body in enumerate(bodies):
            envelope = PLAIN if block.heads is None else Envelope.decode(block.heads[at])
            id = message_id(block.created_ns, block.origin + at, chunk.salt)
            fields = _envelope_fields(block.first + at, id, block.created_ns, envelope)
            if body is not None:
                fields |= _body_field(body)
            if block.letter is not None:
                fields["dead_letter"] = letter_json(block.letter)
            forms.append(MessageJson(**fields))
    return forms


def delivery_json(delivery: Delivery) -> DeliveryJson:
    return DeliveryJson(
        receipt=delivery.receipt,
        deliveries=delivery.deliveries,
        deadline=_moment(delivery.deadline_ns),
        **_fields(delivery),
    )


def viewed_json(viewed: ViewedMessage) -> ViewedJson:
    return ViewedJson(
        is_settled=viewed.is_settled,
        deliveries=viewed.deliveries,
        leased_until=_moment(viewed.leased_until_ns),
        **_fields(viewed),
    )


def _fields(message: Message) -> dict[str, Any]:
    letter = message.dead_letter
    fields = _envelope_fields(message.index, message.id, message.created_at_ns, message.envelope)
    fields |= _body_field(message.body)
    if letter is not None:
        fields["dead_letter"] = letter_json(letter)
    return fields


def _envelope_fields(index: int, id: str, created_at_ns: int, envelope: Envelope) -> dict[str, Any]:
    return {
        "index": index,
        "id": id,
        "content_type": envelope.content_type,
        "attributes": envelope.attributes,
        "topic": envelope.topic,
        "priority": envelope.priority,
        "group_key": envelope.group_key,
        "dedup_key": envelope.dedup_key,
        "not_before": _moment(envelope.not_before_ns),
        "expires_at": _moment(envelope.expires_at_ns),
        "created_at": to_datetime(created_at_ns),
    }


def _body_field(body: bytes) -> dict[str, Any]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": body}


def letter_json(letter: DeadLetter) -> DeadLetterJson:
    return DeadLetterJson(
        queue=letter.queue,
        subscription=letter.subscription,
        index=letter.index,
        deliveries=letter.deliveries,
        reason=letter.reason,
        failed_at=letter.failed_at,
    )


def _moment(time_ns: int | None) -> datetime | None:
    return None if time_ns is None else to_datetime(time_ns)

"""Messages as MessagePack, which is the fastest way to send and to get many of them.

The fields are those of the JSON forms, but bytes are bytes, and what is not set is left out.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Annotated

import msgspec
from blacksheep import Content, Response
from msgspec import UNSET, Meta, UnsetType

from penstock.core.limits import MAX_BATCH_MESSAGES, MAX_PRIORITY
from penstock.core.message import DEFAULT_CONTENT_TYPE, PLAIN, Delivery, NewMessage, to_datetime
from penstock.core.publishing import PublishResult
from penstock.errors import InvalidArgument
from penstock.http.exchange import IncomingRequest
from penstock.http.v1.fields import Time
from penstock.http.v1.message_forms import DeadLetterJson, letter_json
from penstock.http.v1.publish_forms import PublishedJson

__all__ = [
    "MSGPACK",
    "decode_batch",
    "msgpack_answer",
    "msgpack_deliveries",
    "published_run",
    "wants_msgpack",
]

MSGPACK = "application/msgpack"


class NewPacked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message to be published that has more than a body."""

    body: bytes
    content_type: str = DEFAULT_CONTENT_TYPE
    attributes: dict[str, str] = {}
    topic: str | None = None
    priority: Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] = 0
    not_before: Time | None = None
    expires_at: Time | None = None
    group_key: str | None = None
    dedup_key: str | None = None


class NewPackedBatch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message that has nothing but a body is just those bytes."""

    messages: Annotated[list[bytes | NewPacked], Meta(min_length=1, max_length=MAX_BATCH_MESSAGES)]


class PublishedRun(msgspec.Struct, kw_only=True):
    """Messages with consecutive indexes. Their ids differ in the index alone."""

    durability: str
    count: int
    index: int
    id: str


class PackedDelivery(msgspec.Struct, omit_defaults=True):
    """A message in flight until `deadline`. It has `body` if that is UTF-8, else `body_base64`."""

    index: int
    id: str
    created_at: datetime
    receipt: str
    deliveries: int
    deadline: datetime | None = None
    body: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    content_type: str = DEFAULT_CONTENT_TYPE
    attributes: dict[str, str] = {}
    topic: str | None = None
    priority: int = 0
    group_key: str | None = None
    dedup_key: str | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    dead_letter: DeadLetterJson | None = None


class PackedDeliveries(msgspec.Struct, kw_only=True):
    deliveries: list[PackedDelivery]


_decoder = msgspec.msgpack.Decoder(NewPackedBatch)
_encode = msgspec.msgpack.Encoder().encode


def wants_msgpack(request: IncomingRequest) -> bool:
    return request.first.get(b"accept") == MSGPACK.encode()


def msgpack_answer(status: int, value: object) -> Response:
    return Response(status, content=Content(MSGPACK.encode(), _encode(value)))


def decode_batch(data: bytes) -> list[NewMessage | bytes]:
    """Raises `InvalidArgument`."""
    try:
        batch = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidArgument(f"the body is not a batch in MessagePack: {exc}") from None
    except RecursionError:
        raise InvalidArgument("the body is nested too deeply") from None
    return [one if type(one) is bytes else _new_message(one) for one in batch.messages]


def _new_message(form: bytes | NewPacked) -> NewMessage:
    assert isinstance(form, NewPacked)
    return NewMessage(
        body=form.body,
        content_type=form.content_type,
        attributes=form.attributes,
        topic=form.topic,
        priority=form.priority,
        not_before=form.not_before,
        expires_at=form.expires_at,
        group_key=form.group_key,
        dedup_key=form.dedup_key,
    )


def published_run(result: PublishResult) -> PublishedRun | PublishedJson:
    """A run, unless something in the batch is a duplicate."""
    indexes = result.indexes
    if isinstance(indexes, range) and not result.has_duplicates:
        first = result[0]
        return PublishedRun(
            durability=result.durability, count=len(indexes), index=first.index, id=first.id
        )
    return PublishedJson(durability=result.durability, messages=list(result))


def msgpack_deliveries(deliveries: list[Delivery]) -> PackedDeliveries:
    return PackedDeliveries(deliveries=[_packed(delivery) for delivery in deliveries])


# All deliveries of an answer share a deadline, and all messages of a batch a creation time.
_moment = lru_cache(maxsize=256)(to_datetime)


def _packed(delivery: Delivery) -> PackedDelivery:
    deadline_ns, envelope = delivery.deadline_ns, delivery.envelope
    packed = PackedDelivery(  # by position, which takes half as long as by name
        delivery.index,
        delivery.id,
        _moment(delivery.created_at_ns),
        delivery.receipt,
        delivery.deliveries,
        None if deadline_ns is None else _moment(deadline_ns),
    )
    try:
        packed.body = delivery.body.decode()
    except UnicodeDecodeError:
        packed.body_base64 = delivery.body
    if envelope is not PLAIN:
        packed.content_type = envelope.content_type
        packed.attributes = envelope.attributes
        packed.topic = envelope.topic
        packed.priority = envelope.priority
        packed.group_key = envelope.group_key
        packed.dedup_key = envelope.dedup_key
        packed.not_before = delivery.not_before
        packed.expires_at = delivery.expires_at
    if delivery.dead_letter is not None:
        packed.dead_letter = letter_json(delivery.dead_letter)
    return packed

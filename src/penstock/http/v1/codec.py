"""The JSON forms of the native API, and the way from them to the model and back.

Names are snake_case, times ISO 8601 in UTC. What a form does not name is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.graph import HeldMessage
from penstock.core.lifecycle import Kind, LifecycleRun
from penstock.core.limits import MAX_BATCH_MESSAGES, MAX_BODY_BYTES, MAX_PRIORITY
from penstock.core.message import (
    DEFAULT_CONTENT_TYPE,
    PLAIN,
    DeadLetter,
    Delivery,
    Envelope,
    Message,
    NewMessage,
    PublishedMessage,
    ViewedMessage,
    message_id,
    to_datetime,
)
from penstock.core.settling import Outcome
from penstock.core.stats import QueueStats, SubscriptionStats
from penstock.errors import InvalidArgument
from penstock.storage.block import Chunk

__all__ = [
    "DeadLetterJson",
    "DeliveryJson",
    "MessageJson",
    "NewMessageJson",
    "chunk_json",
    "delivery_json",
    "letter_json",
    "message_json",
    "new_message",
]

MAX_WAIT_SECONDS = 20
MAX_PAGE = 1000
# Of messages that are answered all at once, whatever their size.
MAX_VIEW = 100
# An answer ends early when its bodies have this many bytes; the rest is for the next call.
MAX_ANSWER_BYTES = 16 * MAX_BODY_BYTES

# The largest whole number that every JSON reader keeps exactly.
MAX_NUMBER = 2**53 - 1

Index = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Time = Annotated[datetime, Meta(tz=True)]
Targets = Annotated[list[str], Meta(max_length=MAX_BATCH_MESSAGES)]
Start = int | str
_Count = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
_Indexes = Annotated[list[Index], Meta(max_length=MAX_BATCH_MESSAGES)]


class _Form(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a client sends."""


# Queues and subscriptions.


class NewQueueJson(QueueConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to be made: its name, and any of its settings."""

    name: str


class NewSubscriptionJson(
    SubscriptionConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A subscription to be made. `start`: earliest, latest, an index or a time with a zone."""

    name: str
    start: Start = "latest"


class EnsuredSubscriptionJson(
    SubscriptionConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A subscription that is to be there: as a new one, but its name is in the path."""

    start: Start = "latest"


def _changes_of(config: type[msgspec.Struct], name: str) -> type[msgspec.Struct]:
    """The same settings, none of which has a default: what is absent stays as it is."""
    fields = [
        (field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(config)
    ]
    return msgspec.defstruct(
        name, fields, kw_only=True, forbid_unknown_fields=True, module=__name__
    )


QueueChangesJson = _changes_of(QueueConfig, "QueueChangesJson")
SubscriptionChangesJson = _changes_of(SubscriptionConfig, "SubscriptionChangesJson")


def settings_of(form: msgspec.Struct, config: type[msgspec.Struct]) -> dict[str, Any]:
    """The settings that a form gives. Raises `InvalidArgument` for a number no store can keep."""
    found = {}
    for name in config.__struct_fields__:
        value = getattr(form, name)
        if value is UNSET:
            continue
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise InvalidArgument(f"{name} is {value}: use at most {MAX_NUMBER}")
        found[name] = value
    return found


class QueuePage(msgspec.Struct, kw_only=True):
    """`next` is what to pass as `after` for the rest; null at the end."""

    queues: list[QueueStats]
    next: str | None


class AllStats(msgspec.Struct, kw_only=True):
    queues: list[QueueStats]


class SubscriptionList(msgspec.Struct, kw_only=True):
    """`next` is what to pass as `after` for the rest; null at the end."""

    subscriptions: list[SubscriptionStats]
    next: str | None


class DefinedSubscription(SubscriptionStats, frozen=True, kw_only=True):
    """`secret` signs its callbacks; it is there when it is new, and never shown again."""

    secret: str | UnsetType = UNSET


class SecretJson(msgspec.Struct, kw_only=True):
    """Until the next rotation the former secret signs as well."""

    secret: str


class Purged(msgspec.Struct, kw_only=True):
    purged: int


# Messages.


class NewMessageJson(_Form, kw_only=True):
    """A message to be published.

    Exactly one of `body` (text), `body_base64` and `json` (any value; stored as its JSON text,
    with the content type application/json) is the body.
    """

    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    content_type: str | None = None
    attributes: dict[str, str] = {}
    topic: str | None = None
    priority: Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] = 0
    not_before: Time | None = None
    expires_at: Time | None = None
    group_key: str | None = None
    dedup_key: str | None = None


class NewBatchJson(_Form, kw_only=True):
    messages: Annotated[list[NewMessageJson], Meta(min_length=1, max_length=MAX_BATCH_MESSAGES)]


class PublishedJson(msgspec.Struct, kw_only=True):
    """One entry a message, in the order in which they came."""

    durability: str
    messages: list[PublishedMessage]


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


class MessagePage(msgspec.Struct, kw_only=True):
    """`next` is what to pass as `start` for the rest; null at the end."""

    messages: list[MessageJson]
    next: int | None


class ViewedJson(MessageJson, kw_only=True):
    """A message, and how it stands with a subscription. `leased_until` is null if it is not."""

    is_settled: bool
    deliveries: int
    leased_until: datetime | None


class ViewJson(msgspec.Struct, kw_only=True):
    messages: list[ViewedJson]


class FindJson(_Form, kw_only=True):
    ids: Annotated[list[str], Meta(max_length=MAX_VIEW)]


class FoundJson(msgspec.Struct, kw_only=True):
    messages: list[MessageJson | None]


class DeliveryList(msgspec.Struct, kw_only=True):
    deliveries: list[DeliveryJson]


def new_message(form: NewMessageJson) -> NewMessage:
    """Raises `InvalidArgument`."""
    content_type = form.content_type
    if (form.body is UNSET) + (form.body_base64 is UNSET) + (form.json is UNSET) != 2:
        raise InvalidArgument("a message has exactly one of body, body_base64 and json")
    if form.body is not UNSET:
        body = form.body.encode()
    elif form.body_base64 is not UNSET:
        body = _from_base64(form.body_base64)
    else:
        assert form.json is not UNSET
        body = _json_text(form.json)
        content_type = content_type or "application/json"
    return NewMessage(
        body=body,
        content_type=content_type or DEFAULT_CONTENT_TYPE,
        attributes=form.attributes,
        topic=form.topic,
        priority=form.priority,
        not_before=form.not_before,
        expires_at=form.expires_at,
        group_key=form.group_key,
        dedup_key=form.dedup_key,
    )


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("body_base64 is not base64") from None


def _json_text(raw: msgspec.Raw) -> bytes:
    text = bytes(raw)
    if not text.isascii():
        # Its syntax was checked as it was read, but not what is within its strings.
        try:
            text.decode()
        except UnicodeDecodeError:
            raise InvalidArgument("json is not UTF-8") from None
    return text


def message_json(message: Message) -> MessageJson:
    return MessageJson(**_fields(message))


def chunk_json(chunk: Chunk, *, include_body: bool) -> list[MessageJson]:
    """Takes a while if there are many: in a thread."""
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
        **_fields(viewed.message),
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


# Events.


class EventJson(msgspec.Struct, kw_only=True):
    """What happened to one message. `events_index` is where it is told, in `<queue>-events`."""

    queue: str
    events_index: int
    index: int
    id: str
    event: Kind
    subscription: str | None
    deliveries: int | None
    reason: str | None
    topic: str | None
    published_at: datetime
    at: datetime


class EventPage(msgspec.Struct, kw_only=True):
    """`next` is what to pass as `start` for the rest; null at the end."""

    events: list[EventJson]
    next: int | None


def events_json(queue: str, salt: int, at: int, run: LifecycleRun) -> Iterator[EventJson]:
    """A row for each message of a run, which is told at the index ``at``."""
    published_at, moment = to_datetime(run.published_ns), to_datetime(run.at_ns)
    for index in range(run.start, run.stop):
        yield EventJson(
            queue=queue,
            events_index=at,
            index=index,
            id=message_id(run.published_ns, index, salt),
            event=run.event,
            subscription=run.subscription,
            deliveries=run.deliveries,
            reason=run.reason,
            topic=run.topic,
            published_at=published_at,
            at=moment,
        )


# Delivery.


class ReceiveJson(_Form, kw_only=True):
    limit: _Count = 10
    wait_seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0
    lease_seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None


class PollJson(_Form, kw_only=True):
    start: Index
    count: _Count


class AgainJson(_Form, kw_only=True):
    index: Index


class NackJson(_Form, kw_only=True):
    """Without `delay_seconds` the subscription's backoff decides."""

    targets: Targets
    delay_seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    reason: str = ""


class ExtendJson(_Form, kw_only=True):
    targets: Targets
    seconds: Annotated[float, Meta(gt=0, le=1e9)]


class SettleJson(_Form, kw_only=True):
    """Targets are receipts or message ids. `ack_up_to` settles everything below that index.

    `give_back` takes deliveries back that nobody has begun with: they do not count.
    """

    ack: Targets = []
    nack: Annotated[list[NackJson], Meta(max_length=MAX_PAGE)] = []
    extend: Annotated[list[ExtendJson], Meta(max_length=MAX_PAGE)] = []
    give_back: Targets = []
    ack_up_to: Index | None = None


class SettledJson(msgspec.Struct, kw_only=True):
    """An outcome for each target, in the order in which they came."""

    ack: list[Outcome]
    nack: list[list[Outcome]]
    extend: list[list[Outcome]]
    give_back: list[Outcome]
    acked_up_to: int


# Subscriptions' positions, dead letters.


class SeekJson(_Form, kw_only=True):
    """`start`: earliest, latest, an index or a time with a zone."""

    start: Start


class ReleaseJson(_Form, kw_only=True):
    indexes: _Indexes


class HeldJson(msgspec.Struct, kw_only=True):
    """`indexes` are those of `messages`, for who wants nothing else."""

    indexes: list[int]
    messages: list[HeldMessage]


class FilterTestJson(_Form, kw_only=True):
    """A filter to be tried on the newest messages."""

    filter: str
    last: _Count = 100


class LettersJson(_Form, kw_only=True):
    """Ids of the messages that failed; null or absent means all of them."""

    ids: Targets | None = None


class Replayed(msgspec.Struct, kw_only=True):
    replayed: int


class Discarded(msgspec.Struct, kw_only=True):
    discarded: int

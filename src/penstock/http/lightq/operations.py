"""What LightQ's routes say about themselves, for `/openapi.json`."""

from __future__ import annotations

from penstock.core.limits import MAX_PRIORITY
from penstock.errors import (
    BatchTooLarge,
    DiskFull,
    InvalidArgument,
    InvalidName,
    MessageNotFound,
    MessageTooLarge,
    PenstockError,
    QueueFull,
    ReservedQueue,
    StorageFailed,
    SubscriptionNotFound,
)
from penstock.http.openapi.operation import JSON, Answer, Body, Operation, Parameter, gives
from penstock.http.openapi.schema import NAME, NUMBER, TEXT, array_of, object_of

__all__ = [
    "ACK",
    "BATCH_ACK",
    "BATCH_POP",
    "BATCH_PUSH",
    "DLQ_REPLAY",
    "DLQ_VIEW",
    "EXTEND",
    "MAX_DLQ_VIEW",
    "MAX_EXTENSION_SECONDS",
    "MAX_POP",
    "NACK",
    "POP",
    "PUSH",
    "VIEW",
]

MAX_POP = 100
MAX_DLQ_VIEW = 1000
MAX_EXTENSION_SECONDS = 43_200

_TAG = "queue"
_TIME = {"type": ["string", "null"], "description": "UTC, without a zone."}
_TEXTS = {"type": "array", "items": TEXT}
_SOME_TEXTS = {**_TEXTS, "minItems": 1}

_GROUP = Parameter("consumerGroup", "header", "The queue.", NAME, required=True)
_ID = Parameter(
    "id", "query", "The message's id.", {"type": "string", "minLength": 1}, required=True
)
_PRIORITY = Parameter(
    "priority",
    "header",
    "Higher first.",
    {"type": "integer", "minimum": 0, "maximum": MAX_PRIORITY},
)
_SCHEDULED = Parameter("scheduledAt", "header", "Not before; ISO 8601, UTC without a zone.", TEXT)

_MESSAGE = {"id": TEXT, "content": TEXT, "createdAt": _TIME, "priority": NUMBER}
_VIEWED = {
    **_MESSAGE,
    "consumerGroup": TEXT,
    "consumed": {"type": "boolean"},
    "deliveryCount": {
        "type": ["integer", "null"],
        "description": "Null for a consumed message, unless an archive keeps it.",
    },
    "reservedUntil": _TIME,
}
_LETTER = {
    **_MESSAGE,
    "consumerGroup": TEXT,
    "deliveryCount": NUMBER,
    "failedAt": _TIME,
    "dlqReason": TEXT,
    "lastReason": TEXT,
}

_BASIC: tuple[type[PenstockError], ...] = (InvalidArgument, InvalidName, StorageFailed)
_PUSH = (*_BASIC, MessageTooLarge, QueueFull, ReservedQueue, DiskFull)
# Somebody may have deleted the subscription that this API reads through.
_READ = (*_BASIC, SubscriptionNotFound)
_FIND = (*_READ, MessageNotFound)


def _number(name: str, about: str, high: int, *, required: bool = False) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": high}
    return Parameter(name, "query", about, schema, required)


PUSH = Operation(
    "Push one message",
    _TAG,
    gives(object_of(_MESSAGE), "It is stored."),
    parameters=(_GROUP, _PRIORITY, _SCHEDULED),
    body=Body({"text/plain": TEXT, "*/*": TEXT}),
    errors=_PUSH,
    about="A group that does not exist is created.",
)
POP = Operation(
    "Reserve the next message",
    _TAG,
    gives(object_of(_MESSAGE), "The message."),
    parameters=(_GROUP,),
    errors=_FIND,
)
ACK = Operation(
    "Acknowledge a message",
    _TAG,
    (Answer(200, "It is consumed."),),
    parameters=(_GROUP, _ID),
    errors=_FIND,
)
NACK = Operation(
    "Give a message back",
    _TAG,
    (Answer(200, "It will be delivered again, or is a dead letter."),),
    parameters=(_GROUP, _ID, Parameter("reason", "query", "Why.", TEXT)),
    errors=_FIND,
)
EXTEND = Operation(
    "Keep a message reserved for longer",
    _TAG,
    (Answer(200, "Its reservation ends that much later."),),
    parameters=(
        _GROUP,
        _ID,
        _number("seconds", "How much longer.", MAX_EXTENSION_SECONDS, required=True),
    ),
    errors=_FIND,
)
VIEW = Operation(
    "View the oldest messages",
    _TAG,
    gives(array_of(_VIEWED), "The messages."),
    parameters=(
        _GROUP,
        Parameter("messageCount", "header", "How many at most.", NUMBER),
        Parameter("consumed", "header", "`yes`, `no`, or all of them.", TEXT),
    ),
    errors=_READ,
)
DLQ_VIEW = Operation(
    "View dead letters",
    _TAG,
    gives(array_of(_LETTER), "The letters."),
    parameters=(_GROUP, _number("limit", "How many at most.", MAX_DLQ_VIEW)),
    errors=_BASIC,
)
DLQ_REPLAY = Operation(
    "Replay dead letters by id",
    _TAG,
    gives(NUMBER, "How many were replayed."),
    parameters=(_GROUP,),
    body=Body({JSON: _SOME_TEXTS}),
    errors=_BASIC,
)
BATCH_PUSH = Operation(
    "Push many messages",
    _TAG,
    gives(array_of(_MESSAGE), "They are stored."),
    parameters=(_GROUP, _PRIORITY, _SCHEDULED),
    body=Body({JSON: _SOME_TEXTS}),
    errors=(*_PUSH, BatchTooLarge),
)
BATCH_POP = Operation(
    "Reserve the next messages",
    _TAG,
    gives(array_of(_MESSAGE), "What there is; possibly nothing."),
    parameters=(_GROUP, _number("count", "How many at most; 10 if absent.", MAX_POP)),
    errors=_READ,
)
BATCH_ACK = Operation(
    "Acknowledge many messages",
    _TAG,
    gives(NUMBER, "How many of them are consumed."),
    parameters=(_GROUP,),
    body=Body({JSON: _TEXTS}),
    errors=_READ,
)

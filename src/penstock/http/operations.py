"""What the routes beside the native API say about themselves: LightQ's, subscribers', operators'.

By method and path. A route that is missing here is still listed, with what it implies by itself.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import (
    DiskFull,
    InvalidArgument,
    InvalidName,
    MessageNotFound,
    MessageTooLarge,
    PenstockError,
    QueueFull,
    StorageFailed,
)
from penstock.http.operation import JSON, NAME, Answer, Body, Operation, Parameter

__all__ = ["OPERATIONS"]

_TEXT = {"type": "string"}
_TIME = {"type": ["string", "null"], "description": "UTC, without a zone."}
_TEXTS = {"type": "array", "items": _TEXT}
_SOME_TEXTS = {**_TEXTS, "minItems": 1}
_NUMBER = {"type": "integer"}

_GROUP = Parameter("consumerGroup", "header", "The queue.", NAME, required=True)
_ID = Parameter(
    "id", "query", "The message's id.", {"type": "string", "minLength": 1}, required=True
)
_PRIORITY = Parameter(
    "priority", "header", "Higher first.", {"type": "integer", "minimum": 0, "maximum": 10}
)
_SCHEDULED = Parameter("scheduledAt", "header", "Not before; ISO 8601, UTC without a zone.", _TEXT)

_MESSAGE = {"id": _TEXT, "content": _TEXT, "createdAt": _TIME, "priority": _NUMBER}
_VIEWED = {
    **_MESSAGE,
    "consumerGroup": _TEXT,
    "consumed": {"type": "boolean"},
    "deliveryCount": {
        "type": ["integer", "null"],
        "description": "Null for a consumed message, unless an archive keeps it.",
    },
    "reservedUntil": _TIME,
}
_LETTER = {
    **_MESSAGE,
    "consumerGroup": _TEXT,
    "deliveryCount": _NUMBER,
    "failedAt": _TIME,
    "dlqReason": _TEXT,
    "lastReason": _TEXT,
}
_SUBSCRIBER = {
    "username": NAME,
    "role": {"enum": ["USER", "ADMIN"]},
    "rateLimit": _NUMBER,
}
_NEW_SUBSCRIBER: dict[str, Any] = {
    "type": "object",
    "properties": {**_SUBSCRIBER, "password": {"type": "string", "minLength": 1}},
    "required": ["username", "password"],
    "additionalProperties": False,
}
_SUBSCRIBER_CHANGES = {
    "type": "object",
    "properties": {
        name: schema for name, schema in _NEW_SUBSCRIBER["properties"].items() if name != "username"
    },
    "additionalProperties": False,
}
_STATUS = {"type": "object", "properties": {"status": {"enum": ["UP", "DOWN"]}}}

_USERNAME = Parameter("username", "path", "The user's name.", _TEXT, required=True)

_BASIC: tuple[type[PenstockError], ...] = (InvalidArgument, InvalidName, StorageFailed)
_PUSH = (*_BASIC, MessageTooLarge, QueueFull, DiskFull)
_FIND = (*_BASIC, MessageNotFound)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _array(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(properties)}


def _ok(about: str, schema: Any = None, status: int = 200) -> tuple[Answer, ...]:
    return (Answer(status, about, {} if schema is None else {JSON: schema}),)


def _number(name: str, about: str, low: int, high: int, *, required: bool = False) -> Parameter:
    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Parameter(name, "query", about, schema, required)


_LIGHTQ = "queue"
_SUBSCRIBERS = "subscribers"
_OPS = "operations"

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/queue/push"): Operation(
        "Push one text",
        _LIGHTQ,
        _ok("It is stored.", _object(_MESSAGE)),
        (_GROUP, _PRIORITY, _SCHEDULED),
        Body({"text/plain": _TEXT, "*/*": _TEXT}),
        _PUSH,
        "A group that does not exist is made.",
    ),
    ("GET", "/queue/pop"): Operation(
        "Reserve the next message",
        _LIGHTQ,
        _ok("The message.", _object(_MESSAGE)),
        (_GROUP,),
        None,
        _FIND,
    ),
    ("POST", "/queue/ack"): Operation(
        "Done with a message", _LIGHTQ, _ok("It is consumed."), (_GROUP, _ID), None, _FIND
    ),
    ("POST", "/queue/nack"): Operation(
        "Give a message back",
        _LIGHTQ,
        _ok("It will be delivered again, or is a dead letter."),
        (_GROUP, _ID, Parameter("reason", "query", "Why.", _TEXT)),
        None,
        _FIND,
    ),
    ("POST", "/queue/extend-visibility"): Operation(
        "Keep a message reserved for longer",
        _LIGHTQ,
        _ok("It is reserved that long from now."),
        (_GROUP, _ID, _number("seconds", "From now on.", 1, 43_200, required=True)),
        None,
        _FIND,
    ),
    ("GET", "/queue/view"): Operation(
        "View the oldest messages",
        _LIGHTQ,
        _ok("The messages.", _array(_VIEWED)),
        (
            _GROUP,
            Parameter("messageCount", "header", "How many at most.", _NUMBER),
            Parameter("consumed", "header", "`yes`, `no`, or all of them.", _TEXT),
        ),
        None,
        _BASIC,
    ),
    ("GET", "/queue/dlq/view"): Operation(
        "View dead letters",
        _LIGHTQ,
        _ok("The letters.", _array(_LETTER)),
        (_GROUP, _number("limit", "How many at most.", 1, 1000)),
        None,
        _BASIC,
    ),
    ("POST", "/queue/dlq/replay"): Operation(
        "Replay dead letters by id",
        _LIGHTQ,
        _ok("How many.", _NUMBER),
        (_GROUP,),
        Body({JSON: _SOME_TEXTS}),
        _BASIC,
    ),
    ("POST", "/queue/batch/push"): Operation(
        "Push many texts",
        _LIGHTQ,
        _ok("They are stored.", _array(_MESSAGE)),
        (_GROUP, _PRIORITY, _SCHEDULED),
        Body({JSON: _SOME_TEXTS}),
        _PUSH,
    ),
    ("GET", "/queue/batch/pop"): Operation(
        "Reserve the next messages",
        _LIGHTQ,
        _ok("What there is, or nothing.", _array(_MESSAGE)),
        (_GROUP, _number("count", "How many at most; 10 if absent.", 1, 100)),
        None,
        _BASIC,
    ),
    ("POST", "/queue/batch/ack"): Operation(
        "Done with many messages",
        _LIGHTQ,
        _ok("How many of them are consumed.", _NUMBER),
        (_GROUP,),
        Body({JSON: _TEXTS}),
        _BASIC,
    ),
    ("POST", "/admin/subscribers"): Operation(
        "Add a user",
        _SUBSCRIBERS,
        _ok("The user.", _object(_SUBSCRIBER), 201),
        (),
        Body({JSON: _NEW_SUBSCRIBER}),
        _BASIC,
    ),
    ("GET", "/admin/subscribers"): Operation(
        "List the users that were added", _SUBSCRIBERS, _ok("All.", _array(_SUBSCRIBER))
    ),
    ("PATCH", "/admin/subscribers/{username}"): Operation(
        "Change a user's password, role or limit",
        _SUBSCRIBERS,
        _ok("The user.", _object(_SUBSCRIBER)),
        (_USERNAME,),
        Body({JSON: _SUBSCRIBER_CHANGES}),
        _FIND,
        "What is left out stays. Another password voids the tokens given for the old one.",
    ),
    ("DELETE", "/admin/subscribers/{username}"): Operation(
        "Remove a user, who can no longer log in",
        _SUBSCRIBERS,
        (Answer(204, "Done."),),
        (_USERNAME,),
        None,
        _FIND,
    ),
    ("GET", "/livez"): Operation("Whether the process answers", _OPS, _ok("It does.", _STATUS)),
    ("GET", "/readyz"): Operation(
        "Whether it can take requests",
        _OPS,
        (Answer(200, "It can.", {JSON: _STATUS}), Answer(503, "It cannot.", {JSON: _STATUS})),
    ),
    ("GET", "/actuator/health"): Operation(
        "Health, by component",
        _OPS,
        (Answer(200, "Well.", {JSON: _STATUS}), Answer(503, "Not well.", {JSON: _STATUS})),
    ),
    ("GET", "/metrics"): Operation(
        "Figures for Prometheus", _OPS, (Answer(200, "All of them.", {"text/plain": _TEXT}),)
    ),
    ("GET", "/actuator/loggers"): Operation(
        "What is logged", _OPS, _ok("Levels and loggers.", {"type": "object"})
    ),
    ("POST", "/actuator/loggers/{name}"): Operation(
        "Change what is logged",
        _OPS,
        (Answer(204, "Done."),),
        (Parameter("name", "path", "`ROOT`.", _TEXT, required=True),),
        Body({JSON: _object({"configuredLevel": _TEXT})}),
        (InvalidArgument, MessageNotFound),
    ),
}

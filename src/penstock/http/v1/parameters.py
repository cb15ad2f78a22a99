"""Parameters, answers and errors that several operations of the native API have in common."""

from __future__ import annotations

from penstock.errors import (
    InvalidArgument,
    PenstockError,
    QueueNotFound,
    StorageFailed,
    SubscriptionNotFound,
)
from penstock.http.openapi.operation import Answer, Parameter
from penstock.http.openapi.schema import NAME
from penstock.http.v1.fields import MAX_NUMBER, MAX_PAGE

__all__ = [
    "AFTER",
    "END",
    "INCLUDE_BODY",
    "LIMIT",
    "NO_CONTENT",
    "QUEUE_ERRORS",
    "QUEUE_PATH",
    "START",
    "SUBSCRIPTION_ERRORS",
    "SUBSCRIPTION_PATH",
]

_QUEUE = Parameter("queue", "path", "The queue's name.", NAME, required=True)
_SUBSCRIPTION = Parameter("subscription", "path", "The subscription's name.", NAME, required=True)

QUEUE_PATH = (_QUEUE,)
SUBSCRIPTION_PATH = (_QUEUE, _SUBSCRIPTION)

QUEUE_ERRORS: tuple[type[PenstockError], ...] = (InvalidArgument, QueueNotFound, StorageFailed)
SUBSCRIPTION_ERRORS = (*QUEUE_ERRORS, SubscriptionNotFound)

LIMIT = Parameter(
    "limit",
    "query",
    f"How many at most: 1 to {MAX_PAGE}.",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 100},
)
START = Parameter(
    "start",
    "query",
    "The first index.",
    {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER, "default": 0},
)
AFTER = Parameter("after", "query", "Begin behind this name.", {"type": "string", "default": ""})
END = Parameter(
    "end",
    "query",
    "The index to stop before; the end of the queue if absent.",
    {"type": "integer", "minimum": 0},
)
INCLUDE_BODY = Parameter(
    "include_body", "query", "`false` leaves the bodies out.", {"type": "boolean", "default": True}
)
NO_CONTENT = Answer(204, "Done.")

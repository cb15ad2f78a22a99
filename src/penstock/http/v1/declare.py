"""What the routes of the native API have in common when they describe themselves."""

from __future__ import annotations

from typing import Any

from penstock.errors import (
    InvalidArgument,
    PenstockError,
    QueueNotFound,
    StorageFailed,
    SubscriptionNotFound,
)
from penstock.http.operation import JSON, NAME, Answer, Body, Parameter
from penstock.http.v1.fields import MAX_NUMBER, MAX_PAGE

__all__ = [
    "AFTER",
    "END",
    "INCLUDE_BODY",
    "IN_QUEUE",
    "IN_SUBSCRIPTION",
    "LIMIT",
    "NO_CONTENT",
    "OF_QUEUE",
    "OF_SUBSCRIPTION",
    "START",
    "form",
    "gives",
]

_QUEUE = Parameter("queue", "path", "The queue's name.", NAME, required=True)
_SUBSCRIPTION = Parameter("subscription", "path", "The subscription's name.", NAME, required=True)

IN_QUEUE = (_QUEUE,)
IN_SUBSCRIPTION = (_QUEUE, _SUBSCRIPTION)

OF_QUEUE: tuple[type[PenstockError], ...] = (InvalidArgument, QueueNotFound, StorageFailed)
OF_SUBSCRIPTION = (*OF_QUEUE, SubscriptionNotFound)

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


def form(schema: Any, *, required: bool = True) -> Body:
    return Body({JSON: schema}, required)


def gives(schema: Any, about: str, status: int = 200) -> tuple[Answer, ...]:
    return (Answer(status, about, {JSON: schema}),)

"""``/api/producers``: publish content for a topic."""

from __future__ import annotations

import msgspec
from blacksheep import Response

from penstock.core.limits import MAX_BODY_BYTES
from penstock.errors import (
    Conflict,
    DiskFull,
    InvalidArgument,
    MessageTooLarge,
    QueueFull,
    StorageFailed,
)
from penstock.http.api.consumers import Topic
from penstock.http.api.forms import Done, Form, done, read_form
from penstock.http.api.topics import Topics
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route
from penstock.http.openapi.operation import JSON, Body, Operation, gives

__all__ = ["Producers"]

# Room for the topic and the names around the content.
_MAX_BYTES = MAX_BODY_BYTES + 4096


class NewContent(Form, frozen=True, kw_only=True):
    """`content` is any JSON."""

    topic: Topic
    content: msgspec.Raw


class Producers:
    """One handler per path."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/api/producers/publish", self.publish, operation=_PUBLISH, limit="push")
        ]

    async def publish(self, request: IncomingRequest) -> Response:
        new = await read_form(request, NewContent, _MAX_BYTES)
        await self._topics.publish(new.topic, bytes(new.content))
        return done("Published.")


_PUBLISH = Operation(
    "Publish content for a topic",
    "producers",
    gives(Done, "It is stored."),
    body=Body(
        {
            JSON: {
                "type": "object",
                "properties": {
                    "topic": {"type": "string", "minLength": 1, "maxLength": 200},
                    "content": {"description": "Any JSON."},
                },
                "required": ["topic", "content"],
                "additionalProperties": False,
            }
        }
    ),
    errors=(InvalidArgument, MessageTooLarge, QueueFull, Conflict, DiskFull, StorageFailed),
)

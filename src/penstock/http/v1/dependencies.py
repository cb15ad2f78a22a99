"""Dependencies: which subscription waits for which, and the messages that are held meanwhile."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
from blacksheep import Response
from msgspec import Meta

from penstock.broker import Broker
from penstock.core.graph import Graph, HeldMessage
from penstock.core.limits import MAX_BATCH_MESSAGES
from penstock.errors import MessageNotFound, NotHeld
from penstock.http.auth.user import Role
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import Operation, form, gives
from penstock.http.v1.fields import MAX_PAGE, Index
from penstock.http.v1.parameters import (
    LIMIT,
    NO_CONTENT,
    QUEUE_ERRORS,
    QUEUE_PATH,
    SUBSCRIPTION_ERRORS,
    SUBSCRIPTION_PATH,
)
from penstock.http.v1.requests import path_names, path_value, query_number, read_form

__all__ = ["Dependencies"]

_TAG = "subscriptions"


class ReleaseJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    indexes: Annotated[list[Index], Meta(max_length=MAX_BATCH_MESSAGES)]


class HeldJson(msgspec.Struct, kw_only=True):
    """`indexes` are those of `messages`, for callers that need nothing else."""

    indexes: list[int]
    messages: list[HeldMessage]


_release = msgspec.json.Decoder(ReleaseJson)


class Dependencies:
    """One handler per call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        queue = "/v1/queues/{queue}"
        one = f"{queue}/subscriptions/{{subscription}}"
        return [
            Route("GET", f"{queue}/graph", self.graph, operation=_GRAPH),
            Route("GET", f"{one}/held", self.held, Role.ADMIN, operation=_HELD),
            Route("POST", f"{one}/release", self.release, Role.ADMIN, operation=_RELEASE),
        ]

    async def graph(self, request: IncomingRequest) -> Response:
        return answer(HTTPStatus.OK, await self._broker.graph(path_value(request, "queue")))

    async def held(self, request: IncomingRequest) -> Response:
        limit = query_number(request, "limit", 100, low=1, high=MAX_PAGE)
        messages = await self._broker.held_messages(*path_names(request), limit)
        indexes = [message.index for message in messages]
        return answer(HTTPStatus.OK, HeldJson(indexes=indexes, messages=messages))

    async def release(self, request: IncomingRequest) -> Response:
        queue, name = path_names(request)
        indexes = (await read_form(request, _release)).indexes
        await self._broker.release(queue, name, indexes)
        return Response(HTTPStatus.NO_CONTENT)


_GRAPH = Operation(
    "Show which subscription waits for which",
    _TAG,
    gives(Graph, "The subscriptions, and an edge for each that waits for another."),
    parameters=QUEUE_PATH,
    errors=QUEUE_ERRORS,
)
_HELD = Operation(
    "List messages that wait for other subscriptions, and for which",
    _TAG,
    gives(HeldJson, "The lowest of them."),
    parameters=(*SUBSCRIPTION_PATH, LIMIT),
    errors=SUBSCRIPTION_ERRORS,
)
_RELEASE = Operation(
    "Deliver messages although a subscription they wait for has not taken them",
    _TAG,
    (NO_CONTENT,),
    parameters=SUBSCRIPTION_PATH,
    body=form(ReleaseJson),
    errors=(*SUBSCRIPTION_ERRORS, MessageNotFound, NotHeld),
)

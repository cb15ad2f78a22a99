"""Looking at messages: with their state for a subscription, and many of them by id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from blacksheep import Response
from msgspec import Meta

from penstock.broker import Broker
from penstock.core.message import ViewedMessage
from penstock.http.array import PART, array_answer, in_parts
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route
from penstock.http.openapi.operation import Operation, Parameter, form, gives
from penstock.http.v1.fields import MAX_NUMBER
from penstock.http.v1.message_forms import MessageJson, ViewedJson, message_json, viewed_json
from penstock.http.v1.parameters import (
    QUEUE_ERRORS,
    QUEUE_PATH,
    START,
    SUBSCRIPTION_ERRORS,
    SUBSCRIPTION_PATH,
)
from penstock.http.v1.requests import path_names, path_value, query_flag, query_number, read_form

__all__ = ["Views"]

_TAG = "messages"
_MAX_VIEW = 100
# The one field of an answer.
_BEFORE, _AFTER = b'{"messages":[', b"]}"


class FindJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    ids: Annotated[list[str], Meta(max_length=_MAX_VIEW)]


class FoundJson(msgspec.Struct, kw_only=True):
    messages: list[MessageJson | None]


class ViewJson(msgspec.Struct, kw_only=True):
    messages: list[ViewedJson]


_find = msgspec.json.Decoder(FindJson)


class Views:
    """One handler per call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        queue = "/v1/queues/{queue}"
        view = f"{queue}/subscriptions/{{subscription}}/messages"
        return [
            Route("POST", f"{queue}/messages/find", self.find, operation=_FIND),
            Route("GET", view, self.view, operation=_VIEW),
        ]

    async def find(self, request: IncomingRequest) -> Response:
        queue = path_value(request, "queue")
        ids = (await read_form(request, _find)).ids

        async def parts() -> AsyncIterator[list[MessageJson | None]]:
            for at in range(0, max(1, len(ids)), PART):  # with no ids, it still has to exist
                found = await self._broker.find(queue, ids[at : at + PART])
                yield [None if message is None else message_json(message) for message in found]

        return await array_answer(parts(), before=_BEFORE, after=_AFTER)

    async def view(self, request: IncomingRequest) -> Response:
        settled = None
        if request.parameter("settled") is not None:
            settled = query_flag(request, "settled", default=False)
        start = query_number(request, "start", 0, low=0, high=MAX_NUMBER)
        limit = query_number(request, "limit", 10, low=1, high=_MAX_VIEW)
        queue, name = path_names(request)

        async def read(start: int, limit: int) -> list[ViewedMessage]:
            return await self._broker.view(queue, name, settled=settled, start=start, limit=limit)

        forms = ([viewed_json(one) for one in part] async for part in in_parts(read, limit, start))
        return await array_answer(forms, before=_BEFORE, after=_AFTER)


_FIND = Operation(
    "Read messages by their ids",
    _TAG,
    gives(FoundJson, "One entry for each id, in order; null for what the queue does not hold."),
    parameters=QUEUE_PATH,
    body=form(FindJson),
    errors=QUEUE_ERRORS,
)
_VIEW = Operation(
    "Look at the oldest messages, and how they stand with a subscription",
    _TAG,
    gives(ViewJson, "The oldest of those that were asked for."),
    parameters=(
        *SUBSCRIPTION_PATH,
        Parameter(
            "settled",
            "query",
            "`true`: only those that are settled there; `false`: only the others.",
            {"type": "boolean"},
        ),
        START,
        Parameter(
            "limit",
            "query",
            f"How many at most: 1 to {_MAX_VIEW}.",
            {"type": "integer", "minimum": 1, "maximum": _MAX_VIEW, "default": 10},
        ),
    ),
    errors=SUBSCRIPTION_ERRORS,
    about="Nobody's progress is touched.",
)

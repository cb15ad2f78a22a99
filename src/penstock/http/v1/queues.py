"""Queues: list, create, show, alter, delete, purge."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from blacksheep import Response

from penstock.broker import Broker
from penstock.core.config import QueueConfig
from penstock.core.stats import EnsuredQueue, QueueStats
from penstock.errors import InvalidName, QueueExists, ReservedQueue
from penstock.http.auth.user import Role
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import Operation, form, gives
from penstock.http.v1.definition_forms import NewQueueJson, QueueChangesJson, settings_of
from penstock.http.v1.fields import MAX_PAGE
from penstock.http.v1.parameters import AFTER, LIMIT, NO_CONTENT, QUEUE_ERRORS, QUEUE_PATH
from penstock.http.v1.requests import path_value, query_number, read_form
from penstock.turns import Turns

__all__ = ["Queues"]

_TAG = "queues"
_encode = msgspec.json.Encoder().encode
_new_queue = msgspec.json.Decoder(NewQueueJson)
_changes = msgspec.json.Decoder(QueueChangesJson)


class QueuePage(msgspec.Struct, kw_only=True):
    """`next` is what to pass as `after` for the rest; null at the end."""

    queues: list[QueueStats]
    next: str | None


class AllStats(msgspec.Struct, kw_only=True):
    queues: list[QueueStats]


class Purged(msgspec.Struct, kw_only=True):
    purged: int


class Queues:
    """One handler per call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        one = "/v1/queues/{queue}"
        admin = Role.ADMIN
        return [
            Route("GET", one, self.show, operation=_SHOW),
            Route("GET", "/v1/queues", self.list, operation=_LIST),
            Route("GET", "/v1/stats", self.stats, operation=_STATS),
            Route("POST", "/v1/queues", self.create, admin, operation=_CREATE),
            Route("PUT", one, self.ensure, admin, operation=_ENSURE),
            Route("PATCH", one, self.alter, admin, operation=_ALTER),
            Route("DELETE", one, self.delete, admin, operation=_DELETE),
            Route("POST", f"{one}/purge", self.purge, admin, operation=_PURGE),
        ]

    async def list(self, request: IncomingRequest) -> Response:
        limit = query_number(request, "limit", 100, low=1, high=MAX_PAGE)
        after = request.parameter("after") or ""
        found = await self._broker.queues(after=after, limit=limit + 1)
        page = found[:limit]
        rest = page[-1].name if len(found) > limit else None
        return answer(HTTPStatus.OK, QueuePage(queues=page, next=rest))

    async def stats(self, request: IncomingRequest) -> Response:
        """Encoded queue by queue, because there may be very many."""
        turns = Turns()
        parts = []
        for queue in await self._broker.stats():
            parts.append(msgspec.Raw(_encode(queue)))
            await turns.after(1 + len(queue.subscriptions))
        return answer(HTTPStatus.OK, {"queues": parts})

    async def create(self, request: IncomingRequest) -> Response:
        new = await read_form(request, _new_queue)
        config = QueueConfig(**settings_of(new, QueueConfig))
        return answer(HTTPStatus.CREATED, await self._broker.create_queue(new.name, config))

    async def ensure(self, request: IncomingRequest) -> Response:
        """The first caller creates it; others find it as they would have created it."""
        name = path_value(request, "queue")
        settings = settings_of(await read_form(request, _changes), QueueConfig)
        queue = await self._broker.ensure_queue(name, **settings)
        return answer(HTTPStatus.CREATED if queue.is_new else HTTPStatus.OK, queue)

    async def show(self, request: IncomingRequest) -> Response:
        return answer(HTTPStatus.OK, await self._broker.queue_stats(path_value(request, "queue")))

    async def alter(self, request: IncomingRequest) -> Response:
        name = path_value(request, "queue")
        changes = settings_of(await read_form(request, _changes), QueueConfig)
        return answer(HTTPStatus.OK, await self._broker.alter_queue(name, **changes))

    async def delete(self, request: IncomingRequest) -> Response:
        await self._broker.delete_queue(path_value(request, "queue"))
        return Response(HTTPStatus.NO_CONTENT)

    async def purge(self, request: IncomingRequest) -> Response:
        purged = await self._broker.purge_queue(path_value(request, "queue"))
        return answer(HTTPStatus.OK, Purged(purged=purged))


_STATS = Operation("Look at every queue at once", _TAG, gives(AllStats, "Every queue, by name."))
_LIST = Operation(
    "List queues by name",
    _TAG,
    gives(QueuePage, "One page of queues."),
    parameters=(AFTER, LIMIT),
)
_CREATE = Operation(
    "Create a queue, with its subscription `default`",
    _TAG,
    gives(QueueStats, "The queue as it is now.", 201),
    body=form(NewQueueJson),
    errors=(*QUEUE_ERRORS, InvalidName, QueueExists, ReservedQueue),
)
_ENSURE = Operation(
    "Create a queue if it is not there",
    _TAG,
    (
        *gives(EnsuredQueue, "It was there, with these settings."),
        *gives(EnsuredQueue, "It was made.", 201),
    ),
    parameters=QUEUE_PATH,
    body=form(QueueChangesJson, required=False),
    errors=(*QUEUE_ERRORS, InvalidName, QueueExists, ReservedQueue),
    about="Of one that is there, settings that are absent may have any value.",
)
_SHOW = Operation(
    "Look at a queue",
    _TAG,
    gives(QueueStats, "The queue."),
    parameters=QUEUE_PATH,
    errors=QUEUE_ERRORS,
)
_ALTER = Operation(
    "Alter settings of a queue",
    _TAG,
    gives(QueueStats, "The queue as it is now."),
    parameters=QUEUE_PATH,
    body=form(QueueChangesJson),
    errors=QUEUE_ERRORS,
    about="What is absent stays as it is. `fifo` can be changed while the queue is empty.",
)
_DELETE = Operation(
    "Delete a queue, with its messages, subscriptions and dead letters",
    _TAG,
    (NO_CONTENT,),
    parameters=QUEUE_PATH,
    errors=(*QUEUE_ERRORS, ReservedQueue),
)
_PURGE = Operation(
    "Remove every message, for every subscription; dead letters stay",
    _TAG,
    gives(Purged, "How many were removed."),
    parameters=QUEUE_PATH,
    errors=QUEUE_ERRORS,
)

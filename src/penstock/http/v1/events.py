"""Events: what happened to the messages of a queue, row by row, from its events queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from http import HTTPStatus

import msgspec
from blacksheep import Response

from penstock.broker import Broker
from penstock.core.lifecycle import Kind, LifecycleRun, runs_in
from penstock.core.limits import EVENTS_SUFFIX
from penstock.core.message import message_id, to_datetime
from penstock.errors import MissingExtra, QueueNotFound
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import JSON, Answer, Operation, Parameter
from penstock.http.v1.fields import MAX_PAGE
from penstock.http.v1.formats import ARROW, NDJSON, load_arrow, wanted_stream
from penstock.http.v1.parameters import END, QUEUE_ERRORS, QUEUE_PATH, START
from penstock.http.v1.reading import asked_range
from penstock.http.v1.requests import path_value
from penstock.http.v1.streams import Range, Streams
from penstock.storage.block import Chunk

__all__ = ["Events"]

_TAG = "events"
# A page ends early when it has this many rows, and so does an Arrow record batch.
_ROWS = 8192
# A part of the events queue: its messages are small, and each may stand for many rows.
_MESSAGES = 64
_PAGE_MESSAGES = 8
_BYTES = 64 * 1024

_encoder = msgspec.json.Encoder()

Runs = list[tuple[int, LifecycleRun]]
"""Each with the index, in the events queue, of the message that tells it."""


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


class Events:
    """One handler per call."""

    def __init__(self, broker: Broker, streams: Streams) -> None:
        self._broker = broker
        self._streams = streams

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/queues/{queue}/events", self.read, operation=_READ)]

    async def read(self, request: IncomingRequest) -> Response:
        queue = path_value(request, "queue")
        salt = await self._salt(queue)
        kind = wanted_stream(request)
        name = queue + EVENTS_SUFFIX
        asked = await asked_range(self._broker, request, name, is_stream=kind is not None)
        most = _MESSAGES if kind is not None else _PAGE_MESSAGES
        rows = Range(self._broker, name, asked.start, asked.stop, rows=most, most_bytes=_BYTES)
        if kind is None:
            events = await self._page(queue, salt, rows)
            following = asked.next if rows.is_done else rows.at
            return answer(HTTPStatus.OK, EventPage(events=events, next=following))
        if kind == NDJSON:
            return await self._streams.answer(
                request,
                NDJSON,
                rows,
                lambda chunk: (
                    _encoder.encode_lines(_rows(queue, salt, part)) for part in _parts(chunk)
                ),
                following=asked.next,
            )
        arrow = await self._streams.run(load_arrow, "columns")
        return await self._streams.answer(
            request,
            ARROW,
            rows,
            lambda chunk: (arrow.encode_events(queue, salt, part) for part in _parts(chunk)),
            before=arrow.start_of_stream(arrow.EVENTS),
            after=arrow.END,
            following=asked.next,
        )

    async def _salt(self, queue: str) -> int:
        """The number from which the ids of the queue's messages are made."""
        stats = await self._broker.queue_stats(queue, only=[])
        try:
            await self._broker.queue_stats(queue + EVENTS_SUFFIX, only=[])
        except QueueNotFound:
            raise QueueNotFound(
                f"queue {queue!r} tells no events: set its `events` to true"
            ) from None
        chunk = await self._broker.scan(queue, stats.next_index, stats.next_index)
        return chunk.salt

    async def _page(self, queue: str, salt: int, rows: Range) -> list[EventJson]:
        def forms(chunk: Chunk) -> list[EventJson]:
            return [row for part in _parts(chunk) for row in _rows(queue, salt, part)]

        found: list[EventJson] = []
        while not rows.is_done and len(found) < _ROWS:
            found += await self._streams.run(forms, await rows.read())
        return found


def _events(queue: str, salt: int, at: int, run: LifecycleRun) -> Iterator[EventJson]:
    """A row for each message of a run, which the events queue tells at the index ``at``."""
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


def _rows(queue: str, salt: int, runs: Runs) -> list[EventJson]:
    return [row for at, run in runs for row in _events(queue, salt, at, run)]


def _parts(chunk: Chunk) -> Iterator[Runs]:
    """The runs in a part of the events queue, grouped so that no group has too many rows."""
    runs: Runs = []
    count = 0
    for block in chunk.blocks:
        for at, body in enumerate(block.each_body(), block.first):
            for run in runs_in(body):
                runs.append((at, run))
                count += run.stop - run.start
                if count >= _ROWS:
                    yield runs
                    runs, count = [], 0
    if runs:
        yield runs


_READ = Operation(
    "Read what happened to messages",
    _TAG,
    (
        Answer(
            200,
            f"One page, which ends early at about {_ROWS} rows; or a stream of all.",
            {
                JSON: EventPage,
                NDJSON: {"type": "string"},
                ARROW: {"type": "string", "format": "binary"},
            },
            {"Penstock-Next": "Of a stream that `limit` ended: where to go on."},
        ),
    ),
    parameters=(
        *QUEUE_PATH,
        START,
        END,
        Parameter(
            "limit",
            "query",
            f"Messages of the events queue, each with the rows of one command. A page has 1 to "
            f"{MAX_PAGE}, or 100; a stream any number, or all.",
            {"type": "integer", "minimum": 1},
        ),
    ),
    errors=(*QUEUE_ERRORS, MissingExtra),
    about=("`start` and `end` are indexes of `<queue>-events`. Its setting `events` must be on."),
)

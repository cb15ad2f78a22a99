"""Reading messages by index or id, without touching anybody's progress."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from blacksheep import Response

from penstock.broker import Broker
from penstock.errors import InvalidArgument, MessageNotFound, MissingExtra
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import JSON, Answer, Operation, Parameter, gives
from penstock.http.v1.fields import MAX_ANSWER_BYTES, MAX_NUMBER, MAX_PAGE
from penstock.http.v1.formats import ARROW, NDJSON, load_arrow, wanted_stream
from penstock.http.v1.message_forms import MessageJson, MessagePage, chunk_json, message_json
from penstock.http.v1.parameters import END, INCLUDE_BODY, QUEUE_ERRORS, QUEUE_PATH, START
from penstock.http.v1.requests import path_value, query_flag, query_number
from penstock.http.v1.streams import Encode, Range, Streams
from penstock.storage.block import Chunk

__all__ = ["Asked", "Reading", "asked_range"]

_TAG = "messages"
_encoder = msgspec.json.Encoder()


class Asked(NamedTuple):
    """The part of a queue to read: ``start <= index < stop``. `next` is None at the queue's end."""

    start: int
    stop: int
    next: int | None


async def asked_range(
    broker: Broker, request: IncomingRequest, queue: str, *, is_stream: bool
) -> Asked:
    """By `start`, `end` and `limit`, up to the queue's current end. A page always has a limit."""
    start = query_number(request, "start", 0, low=0, high=MAX_NUMBER)
    end = query_number(request, "end", MAX_NUMBER, low=0, high=MAX_NUMBER)
    if end < start:
        raise InvalidArgument(f"end is {end}, which is before start, {start}: use that or more")
    if is_stream:
        limit = query_number(request, "limit", MAX_NUMBER, low=1, high=MAX_NUMBER)
    else:
        limit = query_number(request, "limit", 100, low=1, high=MAX_PAGE)
    stats = await broker.queue_stats(queue, only=[])
    head = min(end, stats.next_index)
    # A stream without a limit includes the stragglers that retention has kept aside.
    at = start if limit == MAX_NUMBER else max(start, stats.first_index)
    stop = min(at + limit, head)
    return Asked(at, stop, stop if at < stop < head else None)


class Reading:
    """One handler per call."""

    def __init__(self, broker: Broker, streams: Streams) -> None:
        self._broker = broker
        self._streams = streams

    def routes(self) -> list[Route]:
        every = "/v1/queues/{queue}/messages"
        return [
            Route("GET", every, self.read, operation=_READ),
            Route("GET", f"{every}/{{id}}", self.show, operation=_SHOW),
        ]

    async def read(self, request: IncomingRequest) -> Response:
        queue = path_value(request, "queue")
        include_body = query_flag(request, "include_body", default=True)
        kind = wanted_stream(request)
        asked = await asked_range(self._broker, request, queue, is_stream=kind is not None)
        rows = Range(self._broker, queue, asked.start, asked.stop)
        if kind is None:
            return await self._page(rows, asked, include_body=include_body)
        if kind == ARROW:
            return await self._arrow(request, queue, rows, asked, include_body=include_body)
        encode = _lines(include_body=include_body)
        return await self._streams.answer(request, NDJSON, rows, encode, following=asked.next)

    async def _page(self, rows: Range, asked: Asked, *, include_body: bool) -> Response:
        forms = partial(chunk_json, include_body=include_body)
        messages: list[MessageJson] = []
        size = 0
        while not rows.is_done and size < MAX_ANSWER_BYTES:
            chunk = await rows.read()
            size += sum(len(block.bodies) for block in chunk.blocks)
            messages += await self._streams.run(forms, chunk)
        following = asked.next if rows.is_done else rows.at
        return answer(HTTPStatus.OK, MessagePage(messages=messages, next=following))

    async def _arrow(
        self, request: IncomingRequest, queue: str, rows: Range, asked: Asked, *, include_body: bool
    ) -> Response:
        arrow = await self._streams.run(load_arrow, "columns")
        return await self._streams.answer(
            request,
            ARROW,
            rows,
            lambda chunk: arrow.encode_messages(queue, chunk, include_body=include_body),
            before=arrow.start_of_stream(arrow.messages_schema(include_body=include_body)),
            after=arrow.END,
            following=asked.next,
        )

    async def show(self, request: IncomingRequest) -> Response:
        message = await self._broker.get(path_value(request, "queue"), path_value(request, "id"))
        return answer(HTTPStatus.OK, message_json(message))


def _lines(*, include_body: bool) -> Encode:
    def encode(chunk: Chunk) -> Iterator[bytes]:
        yield _encoder.encode_lines(chunk_json(chunk, include_body=include_body))

    return encode


_READ = Operation(
    "Read messages by index",
    _TAG,
    (
        Answer(
            200,
            "One page, which ends early at 16 MiB; or a stream of all that was asked for.",
            {
                JSON: MessagePage,
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
            f"How many at most. A page has 1 to {MAX_PAGE}, or 100; a stream any number, or all.",
            {"type": "integer", "minimum": 1},
        ),
        INCLUDE_BODY,
    ),
    errors=(*QUEUE_ERRORS, MissingExtra),
    about=(
        f"Nobody's progress is touched. With `Accept: {NDJSON}` there is one message a line, with "
        f"`Accept: {ARROW}` an Arrow IPC stream."
    ),
)
_SHOW = Operation(
    "Read one message by its id",
    _TAG,
    gives(MessageJson, "The message."),
    parameters=(
        *QUEUE_PATH,
        Parameter("id", "path", "The message's id.", {"type": "string"}, required=True),
    ),
    errors=(*QUEUE_ERRORS, MessageNotFound),
)

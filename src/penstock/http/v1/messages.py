"""Messages of a queue: publish them, read them by index or id."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from blacksheep import Content, Request, Response

from penstock.broker import Broker
from penstock.core.limits import MAX_BODY_BYTES, MAX_PRIORITY
from penstock.core.message import DEFAULT_CONTENT_TYPE, Message, NewMessage
from penstock.errors import (
    BatchTooLarge,
    DiskFull,
    InvalidArgument,
    MessageNotFound,
    MessageTooLarge,
    QueueFull,
    ReservedQueue,
)
from penstock.http.body import read_body
from penstock.http.errors import Refused
from penstock.http.gate import Route, answer
from penstock.http.operation import JSON, Answer, Body, Operation, Parameter
from penstock.http.v1.codec import (
    MAX_PAGE,
    MessageJson,
    MessagePage,
    NewBatchJson,
    NewMessageJson,
    PublishedJson,
    message_json,
    new_message,
)
from penstock.http.v1.declare import IN_QUEUE, LIMIT, OF_QUEUE, START, gives
from penstock.http.v1.requests import decode, path_value, query_number, time_of

__all__ = ["MAX_ANSWER_BYTES", "Messages"]

BATCH = "application/vnd.penstock.batch+json"
NDJSON = "application/x-ndjson"

# An answer ends early when its bodies have this many bytes; the rest is on the next page.
MAX_ANSWER_BYTES = 16 * MAX_BODY_BYTES
# A full batch as base64, and its field names.
_BATCH_BYTES = 24 * MAX_BODY_BYTES
_CHUNK = 64

_TAG = "messages"
_PREFIX = b"penstock-"
_ATTRIBUTE = b"penstock-attribute-"
_OCTETS = DEFAULT_CONTENT_TYPE.encode()
_MAX_INDEX = 2**53 - 1

_batch = msgspec.json.Decoder(NewBatchJson)
_line = msgspec.json.Decoder(NewMessageJson)
_encoder = msgspec.json.Encoder()


class Messages:
    """Handlers, one a call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        every = "/v1/queues/{queue}/messages"
        return [
            Route("POST", every, self.publish, limit="push", operation=_PUBLISH),
            Route("GET", every, self.read, operation=_READ),
            Route("GET", f"{every}/{{id}}", self.show, operation=_SHOW),
        ]

    async def publish(self, request: Request) -> Response:
        stated = request.get_first_header(b"content-type")
        kind = stated.partition(b";")[0].strip().lower() if stated else b""
        if kind == b"application/vnd.penstock.batch+json":
            messages = await _read_batch(request)
        elif kind == b"application/x-ndjson":
            messages = await _read_lines(request)
        else:
            messages = [await _read_single(request, stated)]
        published = await self._broker.publish(path_value(request, "queue"), messages)
        body = PublishedJson(durability=published.durability, messages=list(published))
        return answer(HTTPStatus.CREATED, body)

    async def read(self, request: Request) -> Response:
        queue = path_value(request, "queue")
        start = query_number(request, "start", 0, low=0, high=_MAX_INDEX)
        limit = query_number(request, "limit", 100, low=1, high=MAX_PAGE)
        stats = await self._broker.queue_stats(queue)
        at = max(start, stats.first_index)
        stop = min(at + limit, stats.next_index)
        messages: list[Message] = []
        size = 0
        while at < stop and size < MAX_ANSWER_BYTES:
            chunk = await self._broker.read(queue, at, min(_CHUNK, stop - at))
            size += sum(len(message.body) for message in chunk)
            messages += chunk
            at += _CHUNK
        at = min(at, stop)
        following = at if start < at < stats.next_index else None
        forms = [message_json(message) for message in messages]
        if NDJSON.encode() in (request.get_first_header(b"accept") or b""):
            return _lines(forms, following)
        return answer(HTTPStatus.OK, MessagePage(messages=forms, next=following))

    async def show(self, request: Request) -> Response:
        message = await self._broker.get(path_value(request, "queue"), path_value(request, "id"))
        return answer(HTTPStatus.OK, message_json(message))


def _lines(forms: list[MessageJson], following: int | None) -> Response:
    content = Content(NDJSON.encode(), _encoder.encode_lines(forms))
    response = Response(HTTPStatus.OK, content=content)
    if following is not None:
        response.add_header(b"Penstock-Next", str(following).encode())
    return response


# The three ways to publish.


async def _read_single(request: Request, content_type: bytes | None) -> NewMessage:
    try:
        body = await read_body(request, MAX_BODY_BYTES)
    except Refused as exc:
        if exc.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise MessageTooLarge(
                f"{exc}: store the content elsewhere and send a reference"
            ) from None
        raise
    # A message without any of these is stored without an envelope: leave the defaults alone.
    kind = (
        DEFAULT_CONTENT_TYPE
        if content_type is None or content_type == _OCTETS
        else _text("Content-Type", content_type)
    )
    names = {name.lower(): value for name, value in request.headers if name[:1] in b"pPiI"}
    given = {
        name: value
        for name, value in names.items()
        if name.startswith(_PREFIX) or name == b"idempotency-key"
    }
    if not given:
        return NewMessage(body=body, content_type=kind)
    return _with_headers(body, kind, given)


def _with_headers(body: bytes, content_type: str, given: dict[bytes, bytes]) -> NewMessage:
    key = given.pop(b"idempotency-key", None)
    fields: dict[str, str] = {}
    attributes: dict[str, str] = {}
    for name, value in given.items():
        text = _text(name.decode("latin-1"), value)
        if name.startswith(_ATTRIBUTE) and len(name) > len(_ATTRIBUTE):
            attributes[name[len(_ATTRIBUTE) :].decode("latin-1")] = text
        elif name in _HEADERS:
            fields[_HEADERS[name]] = text
        else:
            raise InvalidArgument(f"the header {name.decode('latin-1')} is unknown")
    dedup_key = fields.get("dedup_key")
    if not dedup_key and key is not None:
        dedup_key = f"{_idempotency_key(key)}/0"
    not_before, expires_at = fields.get("not_before"), fields.get("expires_at")
    return NewMessage(
        body=body,
        content_type=content_type,
        attributes=attributes,
        topic=fields.get("topic"),
        priority=_priority(fields.get("priority", "0")),
        not_before=time_of("Penstock-Not-Before", not_before) if not_before else None,
        expires_at=time_of("Penstock-Expires-At", expires_at) if expires_at else None,
        group_key=fields.get("group_key"),
        dedup_key=dedup_key,
    )


_HEADERS = {
    b"penstock-topic": "topic",
    b"penstock-priority": "priority",
    b"penstock-not-before": "not_before",
    b"penstock-expires-at": "expires_at",
    b"penstock-group-key": "group_key",
    b"penstock-dedup-key": "dedup_key",
}


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"the header {name} is not UTF-8") from None


def _priority(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) <= MAX_PRIORITY):
        raise InvalidArgument(f"Penstock-Priority is {text[:40]!r}: use 0 to {MAX_PRIORITY}")
    return int(text)


def _idempotency_key(value: bytes) -> str:
    key = _text("Idempotency-Key", value)
    if not key:
        raise InvalidArgument(
            "Idempotency-Key is empty: leave it out, or give each publish its own"
        )
    return key


async def _read_batch(request: Request) -> list[NewMessage]:
    batch = decode(_batch, await _read_many(request))
    return _numbered(request, batch.messages)


async def _read_lines(request: Request) -> list[NewMessage]:
    lines = (await _read_many(request)).split(b"\n")
    forms = [
        decode(_line, line, f"line {number}")
        for number, line in enumerate(lines, 1)
        if line and not line.isspace()
    ]
    return _numbered(request, forms)


async def _read_many(request: Request) -> bytes:
    try:
        return await read_body(request, _BATCH_BYTES)
    except Refused as exc:
        if exc.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise BatchTooLarge(f"{exc}: split it") from None
        raise


def _numbered(request: Request, forms: list[NewMessageJson]) -> list[NewMessage]:
    """Message i of a request with the idempotency key k has the dedup key k/i."""
    value = request.get_first_header(b"idempotency-key")
    key = None if value is None else _idempotency_key(value)
    messages = []
    for at, form in enumerate(forms):
        try:
            messages.append(new_message(form, None if key is None else f"{key}/{at}"))
        except InvalidArgument as exc:
            raise InvalidArgument(f"messages[{at}]: {exc}") from None
    return messages


# What the routes say about themselves.


def _header(name: str, about: str, schema: str = "string", format: str | None = None) -> Parameter:
    kind = {"type": schema} if format is None else {"type": schema, "format": format}
    return Parameter(name, "header", about, kind)


_PUBLISH = Operation(
    "Publish one message, or a batch",
    _TAG,
    gives(PublishedJson, "All of it is stored, with the durability that is stated.", 201),
    (
        *IN_QUEUE,
        _header("Idempotency-Key", "Message i of a request gets the dedup key `<key>/<i>`."),
        _header("Penstock-Topic", "The topic of a single message."),
        Parameter(
            "Penstock-Priority",
            "header",
            "The priority of a single message; higher first.",
            {"type": "integer", "minimum": 0, "maximum": MAX_PRIORITY},
        ),
        _header("Penstock-Not-Before", "Do not deliver it before.", format="date-time"),
        _header("Penstock-Expires-At", "It ends then, if nobody took it.", format="date-time"),
        _header("Penstock-Group-Key", "Its group, in which a FIFO queue keeps order."),
        _header("Penstock-Dedup-Key", "A second one with this key is not stored."),
    ),
    Body({"*/*": {}, BATCH: NewBatchJson, NDJSON: {"type": "string"}}, required=False),
    (
        *OF_QUEUE,
        MessageTooLarge,
        BatchTooLarge,
        QueueFull,
        ReservedQueue,
        DiskFull,
    ),
    "Of any content type but two, the body is one message, which the `Penstock-` headers complete; "
    "`Penstock-Attribute-<name>` is an attribute, its name in lower case. "
    f"`{BATCH}` holds many messages, and so does `{NDJSON}`, one a line. "
    "All of a batch is stored, or nothing.",
)
_READ = Operation(
    "Read messages by index",
    _TAG,
    (
        Answer(
            200,
            "One page. It ends early at 16 MiB.",
            {JSON: MessagePage, NDJSON: {"type": "string"}},
            {"Penstock-Next": "With NDJSON: the `start` of the next page, if there is one."},
        ),
    ),
    (*IN_QUEUE, START, LIMIT),
    None,
    OF_QUEUE,
    f"Nobody's progress is touched. With `Accept: {NDJSON}` there is one message a line.",
)
_SHOW = Operation(
    "Read one message by its id",
    _TAG,
    gives(MessageJson, "The message."),
    (*IN_QUEUE, Parameter("id", "path", "The message's id.", {"type": "string"}, required=True)),
    None,
    (*OF_QUEUE, MessageNotFound),
)

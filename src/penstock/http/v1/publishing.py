"""Publishing: one message, or many in any of the formats for them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from blacksheep import Response

from penstock.broker import Broker
from penstock.core.limits import MAX_BODY_BYTES, MAX_KEY_CHARACTERS, MAX_PRIORITY
from penstock.core.message import DEFAULT_CONTENT_TYPE, NewMessage
from penstock.core.publishing import NewBatch
from penstock.errors import (
    BatchTooLarge,
    DiskFull,
    InvalidArgument,
    MessageTooLarge,
    MissingExtra,
    QueueFull,
    ReservedQueue,
)
from penstock.http.body import read_body
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import JSON, Answer, Body, Operation, Parameter
from penstock.http.v1.formats import ARROW, BATCH, MSGPACK_BATCH, NDJSON, load_arrow
from penstock.http.v1.msgpack_forms import (
    MSGPACK,
    decode_batch,
    msgpack_answer,
    published_run,
    wants_msgpack,
)
from penstock.http.v1.parameters import QUEUE_ERRORS, QUEUE_PATH
from penstock.http.v1.publish_forms import NewBatchJson, NewMessageJson, PublishedJson, new_message
from penstock.http.v1.requests import decode, path_value, time_of
from penstock.http.v1.streams import Streams

__all__ = ["Publishing"]

# A full batch as base64, and its field names.
_BATCH_BYTES = 24 * MAX_BODY_BYTES

_TAG = "messages"
_PREFIX = b"penstock-"
_ATTRIBUTE = b"penstock-attribute-"
_OCTETS = DEFAULT_CONTENT_TYPE.encode()
# As they are in a header.
_KIND_BATCH = BATCH.encode()
_KIND_MSGPACK = MSGPACK_BATCH.encode()
_KIND_NDJSON = NDJSON.encode()
_KIND_ARROW = ARROW.encode()

_batch = msgspec.json.Decoder(NewBatchJson)
_line = msgspec.json.Decoder(NewMessageJson)


class Publishing:
    """One handler per call."""

    def __init__(self, broker: Broker, streams: Streams) -> None:
        self._broker = broker
        self._streams = streams

    def routes(self) -> list[Route]:
        path = "/v1/queues/{queue}/messages"
        return [Route("POST", path, self.publish, limit="push", operation=_PUBLISH)]

    async def publish(self, request: IncomingRequest) -> Response:
        stated = request.first.get(b"content-type")
        kind = stated.partition(b";")[0].strip().lower() if stated else b""
        if kind == _KIND_BATCH:
            messages: Sequence[NewMessage | bytes] | NewBatch = await _read_batch(request)
        elif kind == _KIND_MSGPACK:
            messages = decode_batch(await read_body(request, _BATCH_BYTES))
        elif kind == _KIND_NDJSON:
            messages = await _read_lines(request)
        elif kind == _KIND_ARROW:
            messages = await self._read_arrow(request)
        else:
            messages = [await _read_single(request, stated)]
        published = await self._broker.publish(
            path_value(request, "queue"), messages, idempotency_key=_idempotency_key(request)
        )
        if wants_msgpack(request):
            return msgpack_answer(HTTPStatus.CREATED, published_run(published))
        body = PublishedJson(durability=published.durability, messages=list(published))
        return answer(HTTPStatus.CREATED, body)

    async def _read_arrow(self, request: IncomingRequest) -> NewBatch:
        rows = await self._streams.run(load_arrow, "rows")
        data = await read_body(request, _BATCH_BYTES)
        batch: NewBatch = await self._streams.run(rows.read_batch, data)
        return batch


# The formats.


async def _read_single(request: IncomingRequest, content_type: bytes | None) -> NewMessage:
    body = await read_body(request, MAX_BODY_BYTES, MessageTooLarge)
    # A message with nothing but defaults is stored without an envelope, so keep it at that.
    kind = (
        DEFAULT_CONTENT_TYPE
        if content_type is None or content_type == _OCTETS
        else _text("Content-Type", content_type)
    )
    names = {name.lower(): value for name, value in request.headers if name[:1] in b"pP"}
    given = {name: value for name, value in names.items() if name.startswith(_PREFIX)}
    if not given:
        return NewMessage(body=body, content_type=kind)
    return _with_headers(body, kind, given)


def _with_headers(body: bytes, content_type: str, given: dict[bytes, bytes]) -> NewMessage:
    fields: dict[str, str] = {}
    attributes: dict[str, str] = {}
    for name, value in given.items():
        text = _text(name.decode("latin-1"), value)
        if name.startswith(_ATTRIBUTE) and len(name) > len(_ATTRIBUTE):
            attributes[name[len(_ATTRIBUTE) :].decode("latin-1")] = text
        elif name in _HEADERS:
            fields[_HEADERS[name]] = text
        else:
            raise InvalidArgument(
                f"the header {name.decode('latin-1')} is unknown: use penstock-attribute-<name> or "
                f"one of {', '.join(known.decode() for known in _HEADERS)}"
            )
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
        dedup_key=fields.get("dedup_key"),
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
        raise InvalidArgument(f"the header {name} is not UTF-8: encode it so") from None


def _priority(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) <= MAX_PRIORITY):
        raise InvalidArgument(f"Penstock-Priority is {text[:40]!r}: use 0 to {MAX_PRIORITY}")
    return int(text)


def _idempotency_key(request: IncomingRequest) -> str | None:
    value = request.first.get(b"idempotency-key")
    if value is None:
        return None
    key = _text("Idempotency-Key", value)
    if not 0 < len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidArgument(
            f"Idempotency-Key has {len(key)} characters: use 1 to {MAX_KEY_CHARACTERS}, and give "
            "each publish its own"
        )
    return key


async def _read_batch(request: IncomingRequest) -> list[NewMessage]:
    batch = decode(_batch, await read_body(request, _BATCH_BYTES))
    return [_new_message(form, f"messages[{at}]") for at, form in enumerate(batch.messages)]


async def _read_lines(request: IncomingRequest) -> list[NewMessage]:
    lines = (await read_body(request, _BATCH_BYTES)).split(b"\n")
    forms = [
        (decode(_line, line, f"line {number}"), f"line {number}")
        for number, line in enumerate(lines, 1)
        if line and not line.isspace()
    ]
    return [_new_message(form, where) for form, where in forms]


def _new_message(form: NewMessageJson, where: str) -> NewMessage:
    try:
        return new_message(form)
    except InvalidArgument as exc:
        raise InvalidArgument(f"{where}: {exc}") from None


# What the route says about itself.


def _header(name: str, about: str, schema: str = "string", format: str | None = None) -> Parameter:
    kind = {"type": schema} if format is None else {"type": schema, "format": format}
    return Parameter(name, "header", about, kind)


_PUBLISH = Operation(
    "Publish one message, or a batch",
    _TAG,
    (
        Answer(
            201,
            "All of it is stored, with the durability that is stated.",
            {JSON: PublishedJson, MSGPACK: {"type": "string", "format": "binary"}},
        ),
    ),
    parameters=(
        *QUEUE_PATH,
        _header("Idempotency-Key", "A second request with it is answered as the first was."),
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
    body=Body(
        {
            "*/*": {},
            BATCH: NewBatchJson,
            NDJSON: {"type": "string"},
            ARROW: {"type": "string", "format": "binary"},
            MSGPACK_BATCH: {"type": "string", "format": "binary"},
        },
        required=False,
    ),
    errors=(
        *QUEUE_ERRORS,
        MessageTooLarge,
        BatchTooLarge,
        MissingExtra,
        QueueFull,
        ReservedQueue,
        DiskFull,
    ),
    about=(
        "Of any content type but four, the body is one message, which the `Penstock-` headers "
        "complete; `Penstock-Attribute-<name>` is an attribute, its name in lower case. "
        f"`{BATCH}` holds many messages, and so do `{NDJSON}`, one per line, "
        f"`{ARROW}`, one per row, and `{MSGPACK_BATCH}`. "
        "All of a batch is stored, or nothing."
    ),
)

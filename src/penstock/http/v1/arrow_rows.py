"""A publish batch that comes as an Arrow IPC stream.

What a stranger sends is not trusted: everything is validated before it is looked at, and nothing
may stand for more bytes than were sent. So compressed buffers, and types whose values can share
bytes (dictionaries, views, run ends), are refused.

Import it through `penstock.http.v1.formats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from struct import error as StructError  # noqa: N812 - it is a class, whatever its name says
from struct import unpack_from
from typing import Any

import pyarrow as pa

from penstock.core.limits import MAX_BATCH_MESSAGES
from penstock.core.message import DEFAULT_CONTENT_TYPE, NewMessage
from penstock.core.publishing import NewBatch, prepare
from penstock.errors import BatchTooLarge, InvalidArgument

__all__ = ["read_batch"]

_TEXTS = ("content_type", "topic", "group_key", "dedup_key")
_TIMES = ("not_before", "expires_at")
_COLUMNS = ("body", "attributes", "priority", *_TEXTS, *_TIMES)

# Of a record batch's table in its flatbuffer: the field that says how it is compressed.
_HEADER_FIELD = 2
_COMPRESSION_FIELD = 3


def read_batch(data: bytes) -> NewBatch:
    """Raises `InvalidArgument`, `BatchTooLarge` or `MessageTooLarge`. Takes a while: in a thread.

    Columns that a message does not have are refused.
    """
    columns = _columns(data)
    bodies = columns.pop("body")
    if not columns:
        return prepare(bodies)
    return prepare([_message(bodies, columns, at) for at in range(len(bodies))])


def _columns(data: bytes) -> dict[str, list[Any]]:
    try:
        _refuse_compressed(data)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            _check_schema(reader.schema)
            names = reader.schema.names
            columns: dict[str, list[Any]] = {name: [] for name in names}
            for batch in reader:
                if len(columns["body"]) + batch.num_rows > MAX_BATCH_MESSAGES:
                    raise BatchTooLarge(
                        f"the batch has more than {MAX_BATCH_MESSAGES} messages: split it"
                    )
                batch.validate(full=True)
                for name in names:
                    columns[name] += _values(name, batch.column(name))
    except (pa.ArrowException, pa.ArrowInvalid, OSError, StructError, ValueError) as exc:
        raise InvalidArgument(f"the body is no Arrow stream: {str(exc)[:200]}") from None
    return columns


def _refuse_compressed(data: bytes) -> None:
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
        if message.type != "record batch":
            continue
        metadata = memoryview(message.metadata)
        (root,) = unpack_from("<I", metadata)
        header = _field(metadata, root, _HEADER_FIELD)
        if header is None:
            continue
        (offset,) = unpack_from("<I", metadata, header)
        if _field(metadata, header + offset, _COMPRESSION_FIELD) is not None:
            raise InvalidArgument("the batch is compressed: send it without compression")


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Where a table of a flatbuffer has a field; None if it has its default."""
    (back,) = unpack_from("<i", data, table)
    fields = table - back
    (size,) = unpack_from("<H", data, fields)
    place = 4 + 2 * number
    if place >= size:
        return None
    (at,) = unpack_from("<H", data, fields + place)
    return table + at if at else None


def _check_schema(schema: pa.Schema) -> None:
    names = schema.names
    if "body" not in names:
        raise InvalidArgument("there is no column body: it holds the messages")
    for name in names:
        if name not in _COLUMNS:
            raise InvalidArgument(f"the column {name[:40]!r} is unknown: use {', '.join(_COLUMNS)}")
        if names.count(name) > 1:
            raise InvalidArgument(f"there are two columns {name}")
        kind = schema.field(name).type
        if not _is_right(name, kind):
            raise InvalidArgument(f"the column {name} is {kind}: use {_WANTED[name]}")


_WANTED = {
    "body": "binary or string",
    "attributes": "map<string, string>",
    "priority": "int32",
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(_TIMES, "a timestamp with a zone"),
}


def _is_right(name: str, kind: pa.DataType) -> bool:
    types = pa.types
    if name == "body":
        right = types.is_binary(kind) or types.is_large_binary(kind) or _is_text(kind)
    elif types.is_null(kind):
        right = True
    elif name == "attributes":
        right = types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)
    elif name == "priority":
        right = types.is_integer(kind)
    elif name in _TIMES:
        right = types.is_timestamp(kind) and kind.tz is not None
    else:
        right = _is_text(kind)
    return bool(right)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _values(name: str, column: pa.Array) -> list[Any]:
    if name == "body":
        if column.null_count:
            raise InvalidArgument("a body is null: every message has one")
        is_large = pa.types.is_large_string(column.type)
        if is_large or pa.types.is_string(column.type):
            column = column.cast(pa.large_binary() if is_large else pa.binary())
    elif name in _TIMES and pa.types.is_timestamp(column.type):
        # A datetime has microseconds.
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def _message(bodies: Sequence[bytes], columns: dict[str, list[Any]], at: int) -> NewMessage:
    given = {name: values[at] for name, values in columns.items()}
    attributes = dict(given.get("attributes") or ())
    not_before: datetime | None = given.get("not_before")
    expires_at: datetime | None = given.get("expires_at")
    try:
        message = NewMessage(
            body=bodies[at],
            content_type=given.get("content_type") or DEFAULT_CONTENT_TYPE,
            attributes=attributes,
            topic=given.get("topic"),
            priority=given.get("priority") or 0,
            not_before=not_before,
            expires_at=expires_at,
            group_key=given.get("group_key"),
            dedup_key=given.get("dedup_key"),
        )
        message.envelope()
    except InvalidArgument as exc:
        raise InvalidArgument(f"row {at}: {exc}") from None
    return message

"""A batch to be published that comes as an Arrow IPC stream.

What a stranger sends is not trusted: everything is validated before it is used, and nothing may
expand to more bytes than were sent. So compressed buffers, and types whose values can share bytes
(dictionaries, views, run-end encoding), are refused.

Import it through `penstock.http.v1.formats`.
"""

from __future__ import annotations

from array import array
from datetime import datetime
from struct import error as StructError  # noqa: N812 - it is a class, whatever its name says
from struct import unpack_from
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.bodies import PackedBodies
from penstock.core.limits import MAX_BATCH_MESSAGES
from penstock.core.message import DEFAULT_CONTENT_TYPE, NewMessage, to_datetime
from penstock.core.publishing import NewBatch, prepare, prepare_packed
from penstock.errors import BatchTooLarge, InvalidArgument

__all__ = ["read_batch"]

_TEXTS = ("content_type", "topic", "group_key", "dedup_key")
_TIMES = ("not_before", "expires_at")
_COLUMNS = ("body", "attributes", "priority", *_TEXTS, *_TIMES)

# In the flatbuffer of a message: its header, and the field of a record batch's header that says how
# it is compressed.
_HEADER_FIELD = 2
_COMPRESSION_FIELD = 3


def read_batch(data: bytes) -> NewBatch:
    """Takes a while, so call it in a thread. Unknown columns are refused.

    Raises `InvalidArgument`, `BatchTooLarge` or `MessageTooLarge`.
    """
    try:
        _refuse_compressed(data)
        batches = _batches(data)
        bodies = _bodies(batches)
        columns = {
            name: [value for batch in batches for value in _values(name, batch.column(name))]
            for name in batches[0].schema.names
            if name != "body"
        }
    except (pa.ArrowException, pa.ArrowInvalid, OSError, StructError, ValueError) as exc:
        raise InvalidArgument(f"the body is not an Arrow stream: {str(exc)[:200]}") from None
    if not columns:
        return prepare_packed(bodies)
    return prepare([_message(body, columns, at) for at, body in enumerate(bodies)])


def _batches(data: bytes) -> list[pa.RecordBatch]:
    """The record batches; at least one, possibly empty."""
    batches = []
    count = 0
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        _check_schema(reader.schema)
        for batch in reader:
            count += batch.num_rows
            if count > MAX_BATCH_MESSAGES:
                raise BatchTooLarge(
                    f"the batch has more than {MAX_BATCH_MESSAGES} messages: split it"
                )
            batch.validate(full=True)
            batches.append(batch)
        return batches or [pa.RecordBatch.from_pylist([], reader.schema)]


def _bodies(batches: list[pa.RecordBatch]) -> PackedBodies:
    """A view of the bodies as they lie in the column."""
    columns = [batch.column("body") for batch in batches]
    if any(column.null_count for column in columns):
        raise InvalidArgument("a body is null: every message has one")
    column = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    _, bounds, values = column.buffers()
    sizes = array("I")
    if not len(column):
        return PackedBodies(memoryview(b""), sizes)
    sizes.frombytes(pc.binary_length(column).buffers()[1][: 4 * len(column)])
    places = memoryview(bounds).cast("i")
    data = memoryview(b"" if values is None else values)
    return PackedBodies(data[places[column.offset] : places[column.offset + len(column)]], sizes)


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
    """Where a flatbuffer's table has a field; None if the field is absent."""
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
    if name in _TIMES and pa.types.is_timestamp(column.type):
        return _moments(name, column)
    values: list[Any] = column.to_pylist()
    return values


def _moments(name: str, column: pa.Array) -> list[datetime | None]:
    """Times as datetimes, which have microseconds.

    The zone is for display alone, and this machine may not know it: the moment is in UTC anyway.
    """
    to_microseconds = pc.CastOptions(pa.timestamp("us", "UTC"), allow_time_truncate=True)
    try:
        microseconds = column.cast(options=to_microseconds).cast(pa.int64()).to_pylist()
        return [None if us is None else to_datetime(us * 1000) for us in microseconds]
    except (pa.ArrowInvalid, OverflowError):
        raise InvalidArgument(
            f"the column {name} has a time that is out of reach: use one from 1678 to 2261"
        ) from None


def _message(body: bytes, columns: dict[str, list[Any]], at: int) -> NewMessage:
    given = {name: values[at] for name, values in columns.items()}
    attributes = dict(given.get("attributes") or ())
    not_before: datetime | None = given.get("not_before")
    expires_at: datetime | None = given.get("expires_at")
    try:
        message = NewMessage(
            body=body,
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

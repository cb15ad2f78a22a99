"""Messages as Arrow columns, made of blocks: no object for each message.

Import it through `penstock.http.v1.formats`, which says what to install when pyarrow is missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain

import pyarrow as pa

from penstock.core.lifecycle import LifecycleRun
from penstock.core.message import DEFAULT_CONTENT_TYPE, PLAIN, Envelope, message_id
from penstock.storage.block import Block, Chunk

__all__ = [
    "END",
    "EVENTS",
    "MESSAGES",
    "encode_events",
    "encode_messages",
    "messages_schema",
    "start_of_stream",
]

MESSAGES = pa.schema(
    [
        ("queue", pa.string()),
        ("index", pa.int64()),
        ("id", pa.string()),
        ("body", pa.binary()),
        ("content_type", pa.string()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("topic", pa.string()),
        ("priority", pa.int32()),
        ("group_key", pa.string()),
        ("created_at", pa.timestamp("us", "UTC")),
    ]
)
_WITHOUT_BODY = MESSAGES.remove(MESSAGES.get_field_index("body"))

EVENTS = pa.schema(
    [
        ("queue", pa.string()),
        ("events_index", pa.int64()),
        ("index", pa.int64()),
        ("id", pa.string()),
        ("event", pa.string()),
        ("subscription", pa.string()),
        ("deliveries", pa.int32()),
        ("reason", pa.string()),
        ("topic", pa.string()),
        ("published_at", pa.timestamp("us", "UTC")),
        ("at", pa.timestamp("us", "UTC")),
    ]
)

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What ends an IPC stream. One that was cut short does not have it."""

_ID_BYTES = 36
# Where an id has the eight digits that carry the lower bits of the index.
_ID_DIGITS = (19, 20, 21, 22, 24, 25, 26, 27)
_LOW_BITS = 30
_VARIANT = 0x8000_0000


def messages_schema(*, include_body: bool) -> pa.Schema:
    return MESSAGES if include_body else _WITHOUT_BODY


def start_of_stream(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def encode_messages(queue: str, chunk: Chunk, *, include_body: bool) -> Iterator[pa.Buffer]:
    """One record batch of an IPC stream, or none."""
    blocks = chunk.blocks
    if not blocks:
        return
    count = sum(len(block.sizes) for block in blocks)
    columns = [
        _constant(queue, count),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(_indexes(blocks))]),
        _ids(map(_span, blocks), chunk.salt, count),
    ]
    if include_body:
        columns.append(_bodies(blocks, count))
    if all(block.heads is None for block in blocks):
        columns += _plain(count)
    else:
        columns += _envelopes(blocks)
    columns.append(
        pa.Array.from_buffers(
            pa.timestamp("us", "UTC"), count, [None, pa.py_buffer(_times(blocks))]
        )
    )
    schema = messages_schema(include_body=include_body)
    yield pa.RecordBatch.from_arrays(columns, schema=schema).serialize()


def _strings(data: bytes | bytearray, size: int, count: int) -> pa.Array:
    """Texts that are all of one size."""
    offsets = (
        array("i", range(0, size * count + 1, size)) if size else array("i", [0]) * (count + 1)
    )
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _constant(text: str, count: int) -> pa.Array:
    data = text.encode()
    return _strings(data * count, len(data), count)


def _indexes(blocks: list[Block]) -> array[int]:
    indexes = array("q")
    for block in blocks:
        indexes.extend(range(block.first, block.first + len(block.sizes)))
    return indexes


def _times(blocks: list[Block]) -> array[int]:
    times = array("q")
    for block in blocks:
        times.extend(array("q", [block.created_ns // 1000]) * len(block.sizes))
    return times


def _span(block: Block) -> tuple[int, int, int]:
    return block.created_ns, block.origin, block.origin + len(block.sizes)


def _ids(spans: Iterable[tuple[int, int, int]], salt: int, count: int) -> pa.Array:
    """Of messages that were published together: when, and the indexes from and before.

    All ids of such are alike but for eight digits, which are put in column by column.
    """
    texts: list[bytes] = []
    lows = array("I")
    for created_ns, start, stop in spans:
        at = start
        while at < stop:
            # The higher bits are the same up to here.
            end = min(stop, (at >> _LOW_BITS) + 1 << _LOW_BITS)
            texts.append(message_id(created_ns, at, salt).encode() * (end - at))
            low = _VARIANT | at & (1 << _LOW_BITS) - 1
            lows.extend(range(low, low + end - at))
            at = end
    lows.byteswap()
    digits = lows.tobytes().hex().encode()
    data = bytearray().join(texts)
    for number, place in enumerate(_ID_DIGITS):
        data[place::_ID_BYTES] = digits[number :: len(_ID_DIGITS)]
    return _strings(data, _ID_BYTES, count)


def _bodies(blocks: list[Block], count: int) -> pa.Array:
    sizes = chain.from_iterable(block.sizes for block in blocks)
    offsets = array("i", accumulate(sizes, initial=0))
    data = blocks[0].bodies if len(blocks) == 1 else b"".join([block.bodies for block in blocks])
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _plain(count: int) -> list[pa.Array]:
    """Of messages without an envelope."""
    return [
        _constant(DEFAULT_CONTENT_TYPE, count),
        _no_attributes(count),
        pa.nulls(count, pa.string()),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))]),
        pa.nulls(count, pa.string()),
    ]


def _no_attributes(count: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    offsets = pa.Array.from_buffers(
        pa.int32(), count + 1, [None, pa.py_buffer(bytes(4 * (count + 1)))]
    )
    return pa.MapArray.from_arrays(offsets, nothing, nothing)


def _envelopes(blocks: list[Block]) -> list[pa.Array]:
    known: dict[bytes, Envelope] = {b"": PLAIN}  # many are alike
    found: list[Envelope] = []
    for block in blocks:
        if block.heads is None:
            found += [PLAIN] * len(block.sizes)
            continue
        for view in block.heads:
            head = bytes(view)
            envelope = known.get(head)
            if envelope is None:
                envelope = known[head] = Envelope.decode(head)
            found.append(envelope)

    def column(of: Callable[[Envelope], object], kind: pa.DataType) -> pa.Array:
        return pa.array([of(envelope) for envelope in found], kind)

    if any(envelope.attributes for envelope in known.values()):
        kind = MESSAGES.field("attributes").type
        attributes = column(lambda envelope: list(envelope.attributes.items()), kind)
    else:
        attributes = _no_attributes(len(found))
    return [
        column(lambda envelope: envelope.content_type, pa.string()),
        attributes,
        column(lambda envelope: envelope.topic, pa.string()),
        column(lambda envelope: envelope.priority, pa.int32()),
        column(lambda envelope: envelope.group_key, pa.string()),
    ]


def encode_events(queue: str, salt: int, runs: list[tuple[int, LifecycleRun]]) -> pa.Buffer:
    """One record batch: a row for each message of each run, with the index of its event."""
    counts = [run.stop - run.start for _, run in runs]
    count = sum(counts)

    def repeated(values: Iterable[object], kind: pa.DataType) -> pa.Array:
        parts = [[value] * n for value, n in zip(values, counts, strict=True)]
        return pa.array(list(chain.from_iterable(parts)), kind)

    def times(values: Iterable[int]) -> pa.Array:
        column = array("q")
        for time_ns, n in zip(values, counts, strict=True):
            column.extend(array("q", [time_ns // 1000]) * n)
        buffers = [None, pa.py_buffer(column)]
        return pa.Array.from_buffers(pa.timestamp("us", "UTC"), count, buffers)

    indexes = array("q")
    for _, run in runs:
        indexes.extend(range(run.start, run.stop))
    columns = [
        _constant(queue, count),
        repeated((at for at, _ in runs), pa.int64()),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(indexes)]),
        _ids([(run.published_ns, run.start, run.stop) for _, run in runs], salt, count),
        repeated((run.event for _, run in runs), pa.string()),
        repeated((run.subscription for _, run in runs), pa.string()),
        repeated((run.deliveries for _, run in runs), pa.int32()),
        repeated((run.reason for _, run in runs), pa.string()),
        repeated((run.topic for _, run in runs), pa.string()),
        times(run.published_ns for _, run in runs),
        times(run.at_ns for _, run in runs),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS).serialize()

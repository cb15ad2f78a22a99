"""Messages as Arrow columns, made from blocks without an object for each message.

Where there is a choice, Arrow does the work, because it lets other threads run meanwhile. A thread
that holds the interpreter's lock keeps the event loop waiting, and for long if the operating system
then takes the processor away from it.

Import it through `penstock.http.v1.formats`, which says what to install when pyarrow is missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from sys import byteorder

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.lifecycle import LifecycleRun
from penstock.core.limits import MAX_BATCH_MESSAGES
from penstock.core.message import DEFAULT_CONTENT_TYPE, PLAIN, Envelope, message_id
from penstock.core.runs import Run
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
"""The end of an IPC stream. A stream that was cut short does not have it."""

_ID_BYTES = 36
# Where in an id the four digits are that carry the lowest bits of the index.
_ID_DIGITS = (24, 25, 26, 27)
_LOW_BITS = 16
_MASK = (1 << _LOW_BITS) - 1


def _low_digits() -> list[bytes]:
    """For each of a number's lowest four digits, what it is for 0, 1, 2 and so on."""
    numbers = array("H", range(1 << _LOW_BITS))
    if byteorder == "little":
        numbers.byteswap()
    digits = numbers.tobytes().hex().encode()
    return [digits[place :: len(_ID_DIGITS)] for place in range(len(_ID_DIGITS))]


_LOW_DIGITS = _low_digits()


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
        _numbers(_runs((block.first, block.first + len(block.sizes)) for block in blocks)),
        _ids([_span(block) for block in blocks], chunk.salt, count),
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


def _constant(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _runs(ranges: Iterable[Run]) -> list[Run]:
    """The same numbers in as few runs as possible: a publish begins where another has ended."""
    runs: list[Run] = []
    for start, stop in ranges:
        if runs and runs[-1][1] == start:
            runs[-1] = runs[-1][0], stop
        else:
            runs.append((start, stop))
    return runs


_FROM_ZERO = pa.array(range(MAX_BATCH_MESSAGES), pa.int64())


def _numbers(runs: list[Run]) -> pa.Array:
    """All numbers of the runs."""
    most = len(_FROM_ZERO)
    columns = [
        pc.add(_FROM_ZERO.slice(0, min(stop - at, most)), at)
        for start, stop in runs
        for at in range(start, stop, most)
    ]
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _times(blocks: list[Block]) -> array[int]:
    times = array("q")
    for block in blocks:
        times.extend(array("q", [block.created_ns // 1000]) * len(block.sizes))
    return times


def _span(block: Block) -> tuple[int, int, int]:
    return block.created_ns, block.origin, block.origin + len(block.sizes)


def _ids(spans: list[tuple[int, int, int]], salt: int, count: int) -> pa.Array:
    """Each span is of messages published together: the time, and the indexes from and before.

    Their ids are alike but for four digits, which are filled in column by column.
    """
    texts = [
        message_id(created_ns, low, salt).encode() * (high - low)
        for created_ns, start, stop in spans
        for low, high in _alike(start, stop)
    ]
    data = bytearray().join(texts)
    parts = [
        (low & _MASK, high - low)
        for start, stop in _runs((start, stop) for _, start, stop in spans)
        for low, high in _alike(start, stop)
    ]
    for place, digits in zip(_ID_DIGITS, _LOW_DIGITS, strict=True):
        data[place::_ID_BYTES] = b"".join([digits[low : low + size] for low, size in parts])
    offsets = _numbers([(0, count + 1)])
    offsets = pc.multiply(offsets, _ID_BYTES).cast(pa.int32())
    return pa.Array.from_buffers(
        pa.string(), count, [None, offsets.buffers()[1], pa.py_buffer(data)]
    )


def _alike(start: int, stop: int) -> Iterator[Run]:
    """The parts of a range in which ids are alike but for their lowest four digits."""
    while start < stop:
        end = min(stop, (start | _MASK) + 1)
        yield start, end
        start = end


def _bodies(blocks: list[Block], count: int) -> pa.Array:
    sizes = array("I", [0])
    for block in blocks:
        sizes.extend(block.sizes)
    offsets = pc.cumulative_sum(
        pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(sizes)])
    )
    data = blocks[0].bodies if len(blocks) == 1 else b"".join([block.bodies for block in blocks])
    return pa.Array.from_buffers(
        pa.binary(), count, [None, offsets.buffers()[1], pa.py_buffer(data)]
    )


def _plain(count: int) -> list[pa.Array]:
    """The columns of messages without an envelope."""
    return [
        _constant(DEFAULT_CONTENT_TYPE, count),
        _no_attributes(count),
        pa.nulls(count, pa.string()),
        pa.repeat(pa.scalar(0, pa.int32()), count),
        pa.nulls(count, pa.string()),
    ]


def _no_attributes(count: int) -> pa.Array:
    kind = MESSAGES.field("attributes").type
    pair = pa.struct([kind.key_field, kind.item_field])
    return pa.Array.from_buffers(
        kind,
        count,
        [None, pa.py_buffer(bytes(4 * (count + 1)))],
        children=[pa.array([], pair)],
    )


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

    columns = [
        _constant(queue, count),
        repeated((at for at, _ in runs), pa.int64()),
        _numbers(_runs((run.start, run.stop) for _, run in runs)),
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

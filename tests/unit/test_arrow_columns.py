"""Columns made in bulk hold what the messages one by one would."""

from __future__ import annotations

from array import array

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.message import PLAIN, Envelope, message_id
from penstock.http.v1.arrow_columns import encode_messages, messages_schema, start_of_stream
from penstock.storage.block import Block, Chunk

_TEXT = st.text(max_size=5)
_ENVELOPES = st.builds(
    Envelope,
    content_type=st.sampled_from(["text/plain", "application/octet-stream"]),
    attributes=st.dictionaries(_TEXT, _TEXT, max_size=2),
    topic=st.none() | _TEXT,
    priority=st.integers(0, 10),
    group_key=st.none() | _TEXT,
)
# Where the lower bits of an index end, other digits of an id change too.
_FIRSTS = (
    st.integers(0, 2**41)
    | st.integers(2**16 - 12, 2**16)
    | st.integers(2**30 - 12, 2**30)
    | st.just(2**32 - 2)
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Block, list[Envelope]]:
    bodies = draw(st.lists(st.binary(max_size=10), min_size=1, max_size=12))
    plain = st.just(PLAIN)
    envelopes = draw(
        st.lists(
            draw(st.sampled_from([plain, _ENVELOPES])), min_size=len(bodies), max_size=len(bodies)
        )
    )
    is_plain = all(envelope is PLAIN for envelope in envelopes)
    heads = None if is_plain else [b"" if e is PLAIN else e.encode() for e in envelopes]
    first = draw(_FIRSTS)
    block = Block(
        first,
        draw(st.just(first) | _FIRSTS),
        draw(st.integers(0, 2**61)),
        array("I", map(len, bodies)),
        memoryview(b"".join(bodies)),
        heads,
    )
    return block, envelopes


@given(st.lists(blocks(), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_every_column_holds_what_its_messages_have(
    made: list[tuple[Block, list[Envelope]]], salt: int
) -> None:
    chunk = Chunk([block for block, _ in made], 0, salt)

    (data,) = encode_messages("q", chunk, include_body=True)
    table = pa.ipc.open_stream(
        start_of_stream(messages_schema(include_body=True)) + bytes(data)
    ).read_all()

    table.validate(full=True)
    expected = [
        {
            "queue": "q",
            "index": block.first + at,
            "id": message_id(block.created_ns, block.origin + at, salt),
            "body": body,
            "content_type": envelopes[at].content_type,
            "attributes": envelopes[at].attributes,
            "topic": envelopes[at].topic,
            "priority": envelopes[at].priority,
            "group_key": envelopes[at].group_key,
            "created_at": block.created_ns // 1000,
        }
        for block, envelopes in made
        for at, body in enumerate(block.each_body())
    ]
    place = table.schema.get_field_index("created_at")
    table = table.set_column(place, "created_at", table["created_at"].cast(pa.int64()))
    assert table.to_pylist(maps_as_pydicts="strict") == expected


def test_publishes_that_follow_each_other_may_be_more_than_one_could_be() -> None:
    sizes = [7_000, 1, 1, 9_000]
    firsts = [60_000, 67_000, 67_001, 67_002]
    made = [
        Block(first, first, at, array("I", [1]) * size, memoryview(b"x" * size), None)
        for at, (first, size) in enumerate(zip(firsts, sizes, strict=True))
    ]

    (data,) = encode_messages("q", Chunk(made, 76_002, 7), include_body=True)
    table = pa.ipc.open_stream(
        start_of_stream(messages_schema(include_body=True)) + bytes(data)
    ).read_all()

    assert table["index"].to_pylist() == list(range(60_000, 76_002))
    assert table["id"].to_pylist() == [
        message_id(block.created_ns, block.first + at, 7)
        for block in made
        for at in range(len(block.sizes))
    ]

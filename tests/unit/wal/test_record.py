from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.wal.record import (
    HEADER_BYTES,
    MARK,
    MARK_BYTES,
    Ending,
    Record,
    Scan,
    decode,
    decode_mark,
    encode,
    encode_mark,
    find_marks,
    size_at,
)

kinds = st.integers(1, 255)
bodies = st.binary(max_size=300)
SALT = b"saltsalt"


def records_of(data: bytes) -> list[tuple[int, bytes]]:
    return [(kind, bytes(payload)) for _, kind, payload in Scan(memoryview(data))]


@given(kinds, st.lists(bodies, max_size=4))
def test_a_record_reads_back_as_it_was_written(kind: int, parts: list[bytes]) -> None:
    data = encode(kind, *parts)
    found = decode(memoryview(data))
    assert isinstance(found, Record)
    assert (found.kind, bytes(found.payload)) == (kind, b"".join(parts))
    assert size_at(data) == len(data)


@given(kinds, bodies, st.data())
def test_any_flipped_bit_is_detected(kind: int, body: bytes, draw: st.DataObject) -> None:
    data = bytearray(encode(kind, body))
    bit = draw.draw(st.integers(0, len(data) * 8 - 1))
    data[bit // 8] ^= 1 << bit % 8
    assert decode(memoryview(data)) is Ending.INVALID


@given(kinds, bodies, st.data())
def test_any_flipped_bit_is_detected_when_other_records_follow(
    kind: int, body: bytes, draw: st.DataObject
) -> None:
    size = len(encode(kind, body))
    data = bytearray(encode(kind, body) + encode(3, b"x" * 5000) + bytes(100))
    bit = draw.draw(st.integers(0, size * 8 - 1))
    data[bit // 8] ^= 1 << bit % 8
    assert decode(memoryview(data)) is Ending.INVALID


@given(kinds, bodies, st.data())
def test_any_truncation_is_detected(kind: int, body: bytes, draw: st.DataObject) -> None:
    data = encode(kind, body)
    cut = data[: draw.draw(st.integers(0, len(data) - 1))]
    assert isinstance(decode(memoryview(cut)), Ending)
    assert isinstance(decode(memoryview(cut + bytes(100))), Ending)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_never_read_beyond_their_end(data: bytes) -> None:
    scan = Scan(memoryview(data))
    assert sum(HEADER_BYTES + len(payload) for _, _, payload in scan) == scan.offset <= len(data)
    assert scan.ending is not None


@given(st.lists(st.tuples(kinds, bodies)), st.integers(0, 40))
def test_a_scan_yields_every_record_and_ends_at_the_zeros(
    records: list[tuple[int, bytes]], zeros: int
) -> None:
    data = b"".join(encode(kind, body) for kind, body in records)
    scan = Scan(memoryview(data + bytes(zeros)))
    assert [(kind, bytes(payload)) for _, kind, payload in scan] == records
    assert (scan.offset, scan.ending) == (len(data), Ending.END)


def test_a_scan_says_where_the_first_bad_record_is() -> None:
    first, second, third = (encode(2, body) for body in (b"one", b"two", b"three"))
    bad = second[:-1] + b"!"
    scan = Scan(memoryview(first + bad + third))
    assert [bytes(payload) for _, _, payload in scan] == [b"one"]
    assert (scan.offset, scan.ending) == (len(first), Ending.INVALID)


@pytest.mark.parametrize("kind", [0, 256, -1])
def test_a_kind_out_of_range_is_refused(kind: int) -> None:
    with pytest.raises(ValueError, match="kind"):
        encode(kind, b"")


def test_marks_are_found_behind_damage() -> None:
    data = b"\xff" * 30 + encode_mark(SALT, 10) + b"damage" + encode_mark(SALT, 2**40) + b"end"
    assert list(find_marks(data, 0, SALT)) == [10, 2**40]
    assert list(find_marks(data, 31, SALT)) == [2**40]


def test_a_mark_of_another_segment_or_with_a_wrong_crc_does_not_count() -> None:
    damaged = bytearray(encode_mark(SALT, 10))
    damaged[-1] ^= 1
    data = encode_mark(b"another!", 5) + bytes(damaged) + encode(9, SALT + bytes(8)) + SALT
    assert list(find_marks(data, 0, SALT)) == []


def test_a_mark_has_the_size_that_is_reserved_for_it() -> None:
    mark = encode_mark(SALT, 2**64 - 1)
    found = decode(memoryview(mark))
    assert len(mark) == MARK_BYTES
    assert isinstance(found, Record)
    assert found.kind == MARK
    assert decode_mark(found.payload) == 2**64 - 1

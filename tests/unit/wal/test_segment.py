from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptLog, NewerFormat
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    SegmentHeader,
    file_name,
    file_number,
    offset_of,
    position_of,
    read_header,
    segment_of,
    write_header,
)

HEADER = SegmentHeader(number=3, synced=2 << 32 | 99, salt=b"12345678")


def test_a_header_reads_back_as_it_was_written() -> None:
    data = write_header(HEADER)
    assert len(data) == HEADER_BYTES
    assert read_header(data + b"records", number=3) == HEADER


@pytest.mark.parametrize("bit", range(HEADER_BYTES * 8))
def test_any_flipped_bit_of_a_header_is_corruption(bit: int) -> None:
    data = bytearray(write_header(HEADER))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptLog) as caught:
        read_header(bytes(data), number=3)
    assert (caught.value.file, caught.value.offset) == (file_name(3), 0)


def test_a_header_that_is_cut_short_is_corruption() -> None:
    with pytest.raises(CorruptLog):
        read_header(write_header(HEADER)[:-1], number=3)


def test_a_segment_under_the_name_of_another_is_corruption() -> None:
    with pytest.raises(CorruptLog):
        read_header(write_header(HEADER), number=4)


def test_a_newer_version_is_refused_and_both_versions_are_named() -> None:
    data = bytearray(write_header(HEADER))
    data[8:10] = (250).to_bytes(2, "little")
    data[-4:] = crc32c(data[:-4]).to_bytes(4, "little")
    with pytest.raises(NewerFormat, match=r"version 250.*up to version 2"):
        read_header(bytes(data), number=3)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 2))
def test_a_position_is_a_segment_and_an_offset(segment: int, offset: int) -> None:
    position = position_of(segment, offset)
    assert (segment_of(position), offset_of(position)) == (segment, offset)
    assert position < position_of(segment, offset + 1) <= position_of(segment + 1, 0)


def test_names_of_segments_sort_as_their_numbers() -> None:
    numbers = [1, 9, 10, 255, 2**33]
    names = [file_name(number) for number in numbers]
    assert names == sorted(names)
    assert [file_number(name) for name in names] == numbers


@pytest.mark.parametrize("name", ["spare.log", "LOCK", "1.log", "0000000000000001.log.tmp"])
def test_other_files_are_no_segments(name: str) -> None:
    assert file_number(name) is None

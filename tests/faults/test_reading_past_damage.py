"""Finding the next record behind a damaged one, and nothing that only looks like a record."""

from __future__ import annotations

from penstock.storage.wal import record
from penstock.storage.wal.offline.damage import Found, Gap, Walk
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    SegmentHeader,
    position_of,
    write_header,
)

SALT = b"saltsalt"
KIND = 30


class Segment:
    """A segment in the making: each record is a group of its own, with its mark."""

    def __init__(self) -> None:
        self.data = bytearray(write_header(SegmentHeader(number=1, synced=0, salt=SALT)))
        self.offsets: list[int] = []

    def add(self, payload: bytes, *, marked: bool = True) -> int:
        if marked:
            self.data += record.encode_mark(SALT, position_of(1, len(self.data)))
        self.offsets.append(len(self.data))
        self.data += record.encode(KIND, payload)
        return self.offsets[-1]

    def close(self) -> None:
        self.data += record.encode_mark(SALT, position_of(1, len(self.data)))

    def walk(self, *, hints: tuple[int, ...] = (), promised: tuple[int, ...] = ()) -> Walk:
        data = bytes(self.data)
        return Walk(data, segment=1, salt=SALT, hints=hints, promised=promised)


def payloads(walk: Walk) -> list[bytes | Gap]:
    return [bytes(item.payload) if isinstance(item, Found) else item for item in walk]


def test_without_damage_there_are_all_the_records_and_no_gap() -> None:
    segment = Segment()
    for payload in (b"one", b"two", b"three"):
        segment.add(payload)
    segment.close()
    assert payloads(segment.walk()) == [b"one", b"two", b"three"]


def test_behind_a_damaged_payload_the_very_next_record_is_found() -> None:
    # Given two records of one group, the first of them damaged
    segment = Segment()
    damaged = segment.add(b"damaged")
    following = segment.add(b"whole", marked=False)
    segment.close()
    segment.data[damaged + 10] ^= 1
    assert payloads(segment.walk()) == [Gap(damaged, following), b"whole"]


def test_behind_a_damaged_length_the_next_group_is_found() -> None:
    segment = Segment()
    damaged = segment.add(b"damaged")
    segment.add(b"of the same group", marked=False)
    following = segment.add(b"next group")
    segment.close()
    segment.data[damaged] ^= 1
    mark = following - record.MARK_BYTES
    assert payloads(segment.walk()) == [Gap(damaged, mark), b"next group"]


def test_behind_a_damaged_length_the_index_knows_where_a_message_begins() -> None:
    segment = Segment()
    damaged = segment.add(b"damaged")
    following = segment.add(b"of the same group", marked=False)
    segment.add(b"next group")
    segment.close()
    segment.data[damaged] ^= 1
    found = payloads(segment.walk(hints=(damaged, following)))
    assert found == [Gap(damaged, following), b"of the same group", b"next group"]


def test_a_record_inside_a_message_is_never_taken_for_one() -> None:
    # Given a message that holds what looks like records, even with a mark of another salt
    forged = record.encode_mark(b"my guess", 0) + record.encode(KIND, b"forged")
    segment = Segment()
    damaged = segment.add(forged + forged)
    following = segment.add(b"next group")
    segment.close()
    # When the length of its record is damaged, wherever that points to
    for bit in range(8):
        segment.data[damaged] ^= 1 << bit
        # Then nothing in it is read
        mark = following - record.MARK_BYTES
        assert payloads(segment.walk()) == [Gap(damaged, mark), b"next group"]
        segment.data[damaged] ^= 1 << bit


def test_zeros_in_the_middle_are_a_gap_and_not_the_end() -> None:
    segment = Segment()
    for payload in (b"one", b"two", b"three"):
        segment.add(payload)
    segment.close()
    start = segment.offsets[1]
    segment.data[start : start + 8] = bytes(8)
    found = payloads(segment.walk())
    assert found[0] == b"one"
    assert found[-1] == b"three"
    assert isinstance(found[1], Gap)


def test_what_nobody_vouches_for_is_the_torn_end() -> None:
    segment = Segment()
    segment.add(b"one")
    torn = segment.add(b"torn")
    segment.data[torn + 10] ^= 1
    walk = segment.walk()
    assert payloads(walk) == [b"one"]
    assert walk.end == torn
    assert walk.torn_bytes == len(segment.data) - torn


def test_space_that_was_never_written_is_neither_torn_nor_damaged() -> None:
    segment = Segment()
    segment.add(b"one")
    end = len(segment.data)
    segment.data += bytes(1000)
    walk = segment.walk()
    assert payloads(walk) == [b"one"]
    assert (walk.end, walk.torn_bytes) == (end, 0)


def test_a_file_that_was_known_to_be_longer_ends_in_a_gap() -> None:
    segment = Segment()
    segment.add(b"one")
    size = len(segment.data)
    walk = segment.walk(promised=(position_of(1, size + 50),))
    assert payloads(walk) == [b"one", Gap(size, size)]
    # but what somebody says of a later segment says nothing of this one's length
    assert payloads(segment.walk(promised=(position_of(2, HEADER_BYTES),))) == [b"one"]

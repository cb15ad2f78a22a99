"""Bodies in one piece are as good as a list of them."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.bodies import PackedBodies
from penstock.core.events import Published
from penstock.core.limits import MAX_BATCH_BYTES, MAX_BATCH_MESSAGES, MAX_BODY_BYTES
from penstock.core.publishing import merge, prepare, prepare_packed
from penstock.errors import BatchTooLarge, MessageTooLarge
from penstock.storage.block import block_of
from penstock.storage.wal.codec import encode

_BODIES = st.lists(st.binary(max_size=6), max_size=8)


def packed(bodies: list[bytes]) -> PackedBodies:
    return PackedBodies(memoryview(b"".join(bodies)), array("I", map(len, bodies)))


@given(_BODIES, st.slices(8))
def test_they_are_looked_at_as_a_list_is(bodies: list[bytes], part: slice) -> None:
    made = packed(bodies)

    assert len(made) == len(bodies)
    assert list(made) == bodies
    assert made[part] == bodies[part]
    assert [made[at] for at in range(-len(bodies), len(bodies))] == bodies * 2


@given(_BODIES)
def test_there_is_none_beyond_the_last(bodies: list[bytes]) -> None:
    for at in (len(bodies), -len(bodies) - 1):
        with pytest.raises(IndexError):
            packed(bodies)[at]


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=8))
def test_the_log_has_the_same_bytes_of_them(bodies: list[bytes]) -> None:
    def event(of: PackedBodies | list[bytes]) -> Published:
        return Published(at_ns=1, queue_id=2, first=3, count=len(of), size=4, bodies=of)

    kind, parts = encode(event(packed(bodies)))
    expected_kind, expected = encode(event(bodies))

    assert (kind, b"".join(parts)) == (expected_kind, b"".join(expected))
    assert block_of(event(packed(bodies))) == block_of(event(bodies))


def test_they_are_merged_with_others() -> None:
    both = merge([prepare_packed(packed([b"a", b"bc"])), prepare([b"d"])])

    assert list(both.bodies) == [b"a", b"bc", b"d"]
    assert both.size == 4


@pytest.mark.parametrize(
    ("bodies", "refusal"),
    [
        ([b"x" * (MAX_BODY_BYTES + 1)], MessageTooLarge),
        ([b"x" * MAX_BODY_BYTES] * (MAX_BATCH_BYTES // MAX_BODY_BYTES + 1), BatchTooLarge),
        ([b""] * (MAX_BATCH_MESSAGES + 1), BatchTooLarge),
    ],
    ids=["one too large", "too many bytes", "too many"],
)
def test_the_limits_are_the_same(bodies: list[bytes], refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        prepare_packed(packed(bodies))

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.core.message import NewMessage, message_id
from penstock.core.publishing import PublishResult, merge, prepare
from penstock.errors import BatchTooLarge, InvalidArgument, MessageTooLarge


def result() -> PublishResult:
    """Of four messages: the second repeats an older one, the fourth repeats the first."""
    return PublishResult(
        indexes=[10, 3, 11, 10],
        created_ns=5_000_000,
        salt=7,
        duplicates={1: "older", 3: message_id(5_000_000, 10, 7)},
    )


def test_a_result_is_a_sequence_with_an_entry_for_each_message() -> None:
    found = result()
    assert isinstance(found, Sequence)
    assert len(found) == 4
    assert [p.index for p in found] == list(found.indexes) == [10, 3, 11, 10]
    assert [p.duplicate for p in found] == [False, True, False, True]
    assert found[0].id == found[3].id == message_id(5_000_000, 10, 7)
    assert found[1].id == "older"


def test_entries_can_be_counted_from_the_end_and_sliced() -> None:
    found = result()
    assert found[-1] == found[3]
    assert found[-3] == found[1]
    assert found[1:3] == [found[1], found[2]]
    assert list(reversed(found)) == [found[at] for at in (3, 2, 1, 0)]
    for at in (4, -5):
        with pytest.raises(IndexError):
            found[at]


def test_a_result_is_split_as_its_batches_were_merged() -> None:
    parts = result().split([prepare([b"a"]), prepare([b"b", b"c", b"d"])])
    assert [list(part) for part in parts] == [list(result())[:1], list(result())[1:4]]


def test_plain_messages_have_no_envelopes() -> None:
    batch = prepare([b"ab", NewMessage(body=b"c")])
    assert (batch.bodies, batch.envelopes, batch.heads, batch.size) == (
        [b"ab", b"c"],
        None,
        None,
        3,
    )


def test_merged_batches_are_one_batch_in_order() -> None:
    plain, topical = prepare([b"a"]), prepare([NewMessage(body=b"b", topic="t")])
    merged = merge([plain, topical])
    assert merged.bodies == [b"a", b"b"]
    assert merged.envelopes is not None
    assert [envelope.topic for envelope in merged.envelopes] == [None, "t"]
    assert merged.size == plain.size + topical.size
    assert merge([plain, plain]).envelopes is None


def test_limits_are_checked_before_anything_is_stored() -> None:
    with pytest.raises(MessageTooLarge):
        prepare([b"x" * (1024 * 1024 + 1)])
    with pytest.raises(BatchTooLarge):
        prepare([b"x" * (1024 * 1024)] * 17)
    with pytest.raises(BatchTooLarge):
        prepare([b""] * 10_001)
    with pytest.raises(InvalidArgument):
        prepare([bytearray(b"x")])  # type: ignore[list-item]

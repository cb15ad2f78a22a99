from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.message import (
    PLAIN,
    Envelope,
    NewMessage,
    message_id,
    parse_message_id,
    to_datetime,
    to_nanoseconds,
)
from penstock.errors import InvalidArgument

_TIME_NS = st.integers(0, 2**63 - 1)
_INDEX = st.integers(0, 2**42 - 1)
_SALT = st.integers(0, 2**32 - 1)


@given(_TIME_NS, _INDEX, _SALT)
def test_an_id_is_a_uuid_of_version_7_that_carries_time_index_and_salt(
    created_ns: int, index: int, salt: int
) -> None:
    text = message_id(created_ns, index, salt)
    assert str(uuid.UUID(text)) == text
    assert uuid.UUID(text).variant == uuid.RFC_4122
    assert text[14] == "7"
    parsed = parse_message_id(text)
    assert parsed is not None
    assert (parsed.created_ms, parsed.index, parsed.salt) == (created_ns // 1_000_000, index, salt)


@given(_TIME_NS, _TIME_NS, _INDEX, _INDEX, _SALT)
def test_ids_sort_by_millisecond_and_then_by_index(
    one_ns: int, other_ns: int, one: int, other: int, salt: int
) -> None:
    by_key = (one_ns // 1_000_000, one) < (other_ns // 1_000_000, other)
    assert (message_id(one_ns, one, salt) < message_id(other_ns, other, salt)) == by_key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 36,
        "0" * 36,
        "00000000-0000-4000-8000-000000000000",
        "00000000-0000-7000-0000-000000000000",
        "00000000000070008000000000000000",
    ],
)
def test_any_other_text_is_no_id(text: str) -> None:
    assert parse_message_id(text) is None


@given(st.text(max_size=40))
def test_parsing_never_fails(text: str) -> None:
    parse_message_id(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_times_are_exact_to_the_microsecond(time_ns: int) -> None:
    microseconds = time_ns // 1000
    if microseconds * 1000 >= -(2**63):
        assert to_nanoseconds(to_datetime(time_ns)) == microseconds * 1000


def test_a_zone_is_needed_and_any_zone_will_do() -> None:
    with pytest.raises(InvalidArgument, match="no zone"):
        to_nanoseconds(datetime(2026, 1, 1))  # noqa: DTZ001
    east = timezone(timedelta(hours=5))
    assert to_nanoseconds(datetime(1970, 1, 1, 5, tzinfo=east)) == 0
    with pytest.raises(InvalidArgument, match="out of reach"):
        to_nanoseconds(datetime(9999, 1, 1, tzinfo=UTC))


def test_a_message_with_nothing_set_has_the_plain_envelope_and_costs_nothing() -> None:
    assert NewMessage(body=b"a").envelope() is PLAIN
    assert Envelope.decode(b"") is PLAIN
    assert len(PLAIN.encode()) == 1


@given(
    st.builds(
        Envelope,
        content_type=st.text(),
        attributes=st.dictionaries(st.text(), st.text(), max_size=3),
        topic=st.none() | st.text(),
        priority=st.integers(0, 10),
        not_before_ns=st.none() | st.integers(-(2**63), 2**63 - 1),
        expires_at_ns=st.none() | st.integers(-(2**63), 2**63 - 1),
        group_key=st.none() | st.text(),
        dedup_key=st.none() | st.text(),
    )
)
def test_an_envelope_is_decoded_as_it_was_encoded(envelope: Envelope) -> None:
    assert Envelope.decode(envelope.encode()) == envelope

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.filters import Filter, Match, Subject, compile_filter
from penstock.errors import InvalidFilter


def subject(
    body: bytes = b"",
    *,
    attributes: Mapping[str, str] | None = None,
    topic: str | None = None,
    priority: int = 0,
    id: str | Callable[[], str] = "an-id",
) -> Subject:
    return Subject(
        body=body, attributes=attributes or {}, topic=topic, priority=priority, id=id
    )


def verdict(source: str, body: bytes = b"", **parts: Any) -> Match:
    return compile_filter(source).matches(subject(body, **parts))


class Body(bytes):
    """Bytes that count how often they are parsed."""


# What an expression sees


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('topic == "orders"', Match.YES),
        ('topic == "other"', Match.NO),
        ('attributes.tenant == "acme"', Match.YES),
        ('attributes["tenant"] in ["acme", "umbrella"]', Match.YES),
        ('"tenant" in attributes && !("region" in attributes)', Match.YES),
        ("priority >= 5", Match.YES),
        ('id == "an-id"', Match.YES),
        ("body.amount > 100", Match.YES),
        ("body.nested.list[1] == 2", Match.YES),
        ("body.nested.list.exists(n, n == 3)", Match.NO),
        ("body.nothing == null", Match.YES),
        ("body.flag", Match.YES),
        ("has(body.missing)", Match.NO),
        ('body.name.startsWith("pen") && size(body.name) == 8', Match.YES),
        ('topic.matches("^ord[a-z]+$")', Match.YES),
    ],
)
def test_a_filter_sees_the_whole_message(source: str, expected: Match) -> None:
    body = {
        "amount": 150,
        "nested": {"list": [1, 2]},
        "nothing": None,
        "flag": True,
        "name": "penstock",
    }

    found = verdict(
        source,
        json.dumps(body).encode(),
        attributes={"tenant": "acme"},
        topic="orders",
        priority=5,
    )

    assert found is expected


@pytest.mark.parametrize("amount", ["101", "100.5", "1e3", "18446744073709551615"])
def test_integers_and_floats_compare_with_each_other(amount: str) -> None:
    body = f'{{"amount": {amount}}}'.encode()

    assert verdict("body.amount > 100", body) is Match.YES
    assert verdict("body.amount > 100.25", body) is Match.YES
    assert verdict("body.amount < 100", body) is Match.NO


def test_a_missing_topic_is_empty() -> None:
    assert verdict('topic == ""', topic=None) is Match.YES
    assert verdict('topic == "" || priority > 5', topic=None) is Match.YES


@pytest.mark.parametrize(
    "body", [b"", b"hello", b"\xff\xfe", b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b"{", b"NaN"]
)
def test_a_body_that_is_not_json_is_null(body: bytes) -> None:
    assert verdict("body == null", body) is Match.YES
    assert verdict("body.amount > 100", body) is Match.ERROR


def test_unicode_passes_unharmed() -> None:
    assert verdict('body.city == "Zürich 🚰"', '{"city": "Zürich 🚰"}'.encode()) is Match.YES
    assert verdict('body.city == "🚰"', b'{"city": "\\ud83d\\udeb0"}') is Match.YES
    assert verdict('attributes["größe"] == "é"', attributes={"größe": "é"}) is Match.YES


# Errors are no match, and are told apart


@pytest.mark.parametrize(
    "source",
    [
        "body.missing == 1",
        "attributes.missing == 'x'",
        "body.name > 100",
        "body.name.name == 1",
        "body.list[5] == 1",
        "1 / body.zero == 1",
        "body.name",
        "body",
        "!body.name",
        "timestamp(body.name) > timestamp(0)",
    ],
)
def test_an_expression_that_fails_is_an_error(source: str) -> None:
    assert verdict(source, b'{"name": "x", "list": [], "zero": 0}') is Match.ERROR


def test_an_error_that_does_not_matter_is_none() -> None:
    assert verdict('body.missing == 1 || topic == "a"', b"{}", topic="a") is Match.YES
    assert verdict('body.missing == 1 && priority > 5', b"{}") is Match.NO


@pytest.mark.parametrize(
    "number", ["18446744073709551616", "-9223372036854775809", "1" * 400, "1" * 5000, "1e400"]
)
def test_a_number_beyond_64_bits_is_an_error(number: str) -> None:
    body = f'{{"amount": {number}}}'.encode()

    assert verdict("body.amount > 100", body) is Match.ERROR
    assert verdict("body == null", body) is Match.ERROR


def test_json_is_read_up_to_100_levels_deep() -> None:
    assert verdict("size(body) == 1", b"[" * 100 + b"]" * 100) is Match.YES
    assert verdict("size(body) == 1", b"[" * 101 + b"]" * 101) is Match.ERROR
    assert verdict("size(body) == 1", b'{"a":' * 101 + b"1" + b"}" * 101) is Match.ERROR
    assert verdict("body == null", b"[" * 100_000 + b"]" * 100_000) is Match.ERROR
    assert verdict("size(body) == 500", b"[" + b",".join([b"[]"] * 500) + b"]") is Match.YES


def test_text_with_a_nul_never_passes_for_the_text_before_it() -> None:
    assert verdict('topic == "a"', topic="a\0b") is Match.NO
    assert verdict('topic == "a" || priority > 5', topic="a\0b") is Match.ERROR
    assert verdict('body.x == "a"', b'{"x": "a\\u0000b"}') is Match.ERROR
    assert verdict('body.a == "x"', b'{"a\\u0000b": "x"}') is Match.ERROR
    assert verdict('attributes.x == "a"', attributes={"x": "a\0b"}) is Match.ERROR
    assert verdict('attributes.a == "x"', attributes={"a\0b": "x"}) is Match.ERROR


def test_text_that_only_looks_like_a_nul_is_read() -> None:
    assert verdict('body.x == r"\\u0000"', rb'{"x": "\\u0000"}') is Match.YES


def test_half_a_surrogate_pair_is_an_error() -> None:
    assert verdict('topic == "a" || priority > 5', topic="\ud800") is Match.ERROR
    assert verdict('attributes.x == "a"', attributes={"x": "\udc80"}) is Match.ERROR
    assert verdict('attributes.x == "a" || topic == "t"', topic="t", attributes={"x": "\udc80"}) is (
        Match.YES
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)
FILTERS = [
    compile_filter(source)
    for source in (
        "body.a > 1",
        "body == body",
        "body.all(x, x == 1)",
        "body[0] == 'x' || topic.contains('a')",
        "attributes.exists(k, k.startsWith('a')) && attributes.a != id",
        "string(body).matches('[0-9]+') || size(body) > 2",
        "body",
    )
]


@given(
    body=JSON.map(lambda value: json.dumps(value).encode()) | st.binary(),
    attributes=st.dictionaries(st.text(), st.text()),
    topic=st.none() | st.text(),
    priority=st.integers(0, 10),
)
def test_no_message_makes_a_filter_raise(
    body: bytes, attributes: dict[str, str], topic: str | None, priority: int
) -> None:
    message = subject(body, attributes=attributes, topic=topic, priority=priority)
    alone = [filter.matches(message) for filter in FILTERS]

    # Then: what one filter has read does not change what another says.
    message = subject(body, attributes=attributes, topic=topic, priority=priority)
    assert [filter.matches(message) for filter in reversed(FILTERS)] == alone[::-1]

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import filters
from penstock.core.filters import Match, Subject, compile_filter
from penstock.errors import InvalidFilter


def subject(
    body: bytes = b"",
    *,
    attributes: Mapping[str, str] | None = None,
    topic: str | None = None,
    priority: int = 0,
    id: str | Callable[[], str] = "an-id",
) -> Subject:
    return Subject(body=body, attributes=attributes or {}, topic=topic, priority=priority, id=id)


def verdict(source: str, body: bytes = b"", **parts: Any) -> Match:
    return compile_filter(source).matches(subject(body, **parts))


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
    assert verdict("body.missing == 1 && priority > 5", b"{}") is Match.NO


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
    assert verdict('attributes.x == "a" || id == "an-id"', attributes={"x": "\udc80"}) is Match.YES


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


# The topic decides first


@pytest.mark.parametrize(
    "source",
    [
        'topic == "orders"',
        "topic=='orders'",
        '"orders" == topic',
        '  ( topic\n == "orders" ) // the new ones',
        "topic == r'orders'",
        '"""orders""" == .topic',
        'topic == "\\x6frders"',
    ],
)
def test_a_plain_comparison_with_the_topic_needs_no_evaluation(source: str) -> None:
    filter = compile_filter(source)

    assert filter.topic == "orders"
    assert filter.is_topic_only
    assert filter.matches(subject(topic="orders")) is Match.YES
    assert filter.matches(subject(topic="other")) is Match.NO


@pytest.mark.parametrize(
    "source",
    [
        'topic == "orders" && priority > 3',
        'priority > 3 && "orders" == topic',
        'topic == "orders" && (priority > 3 || priority < 0)',
        'topic == "orders" && priority > 3 && attributes.missing == "x || y"',
    ],
)
def test_a_filter_that_requires_a_topic_says_which(source: str) -> None:
    filter = compile_filter(source)

    assert filter.topic == "orders"
    assert not filter.is_topic_only
    assert filter.matches(subject(topic="other", priority=5)) is Match.NO


@pytest.mark.parametrize(
    "source",
    [
        'topic == "orders" || priority > 3',
        'topic == "orders" && priority > 3 || priority < 0',
        'priority > 3 ? topic == "orders" : true',
        '!(topic == "orders")',
        'topic != "orders"',
        "topic == id",
        'topic == "or" + "ders"',
        'id == "topic == orders"',
        'body.exists(topic, topic == "orders")',
    ],
)
def test_any_other_filter_requires_no_topic(source: str) -> None:
    assert compile_filter(source).topic is None


def test_two_topics_at_once_match_nothing() -> None:
    assert verdict('topic == "a" && topic == "b"', topic="a") is Match.NO
    assert verdict('topic == "a" && topic == "b"', topic="b") is Match.NO


# A message is read once, and only as far as needed


def test_the_body_is_parsed_once_and_only_when_a_filter_looks_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[bytes] = []
    decode = filters._decode_json

    def decode_and_note(body: bytes) -> object:
        parsed.append(body)
        return decode(body)

    monkeypatch.setattr(filters, "_decode_json", decode_and_note)
    message = subject(b'{"a": 1}', topic="t")

    for source in ('topic == "t"', "priority == 0", 'topic == "u" && body.a == 1'):
        compile_filter(source).matches(message)
    assert parsed == []

    for source in ("body.a == 1", "body.a == 2", 'body.a == 1 && topic == "t" && id != ""'):
        compile_filter(source).matches(message)
    assert parsed == [b'{"a": 1}']


def test_the_id_is_asked_for_once_and_only_when_a_filter_looks_at_it() -> None:
    asked: list[str] = []

    def make_id() -> str:
        asked.append("an-id")
        return asked[-1]

    message = subject(id=make_id)

    compile_filter("priority == 0").matches(message)
    assert asked == []

    assert compile_filter('id == "an-id"').matches(message) is Match.YES
    assert compile_filter('id != "an-id"').matches(message) is Match.NO
    assert asked == ["an-id"]


# What is refused when it is declared


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("topic ==", "line 1, column 9: Syntax error"),
        ("priority > 3 &&\n  colour == 1", "line 2, column 3: undeclared reference to 'colour'"),
        ("topic == 1", "line 1, column 7: found no matching overload"),
        ("topic", "yields string, not true or false"),
        ("priority + 1", "yields int, not true or false"),
        ("topic == '\ud800'", "half a surrogate pair"),
        ("topic.matches('(')", "regular expression '\\(' is not valid.*missing \\)"),
        ("true" + " " * 4093, "4097 characters, and may have 4096"),
        ("(" * 100 + "true" + ")" * 100, "recursion limit"),
        ("!" * 4096, "Syntax error"),
    ],
)
def test_a_filter_that_cannot_work_is_refused_with_the_reason(source: str, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason) as refusal:
        compile_filter(source)

    assert refusal.value.code == "invalid_filter"


@given(st.text())
def test_any_text_is_a_filter_or_an_invalid_filter(source: str) -> None:
    with contextlib.suppress(InvalidFilter):
        compile_filter(source).matches(subject(b"{}"))


def test_filters_of_the_same_source_are_equal() -> None:
    assert compile_filter("priority > 3") == compile_filter("priority > 3")
    assert compile_filter("priority > 3") != compile_filter("priority > 4")
    assert len({compile_filter("priority > 3"), compile_filter("priority > 3")}) == 1

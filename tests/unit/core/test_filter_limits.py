from __future__ import annotations

import json
import random
import time

import pytest

from penstock.core.filters import Filter, Match, Subject, compile_filter
from penstock.errors import InvalidFilter

MEBIBYTE = 1024 * 1024


def matches(filter: Filter, body: object) -> Match:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert len(encoded) <= MEBIBYTE
    return filter.matches(
        Subject(body=encoded, attributes={"a": "b"}, topic="t", priority=1, id="an-id")
    )


@pytest.mark.parametrize(
    "source",
    [
        "body.items.exists(item, item.price > 100 && item.price < 1000)",
        "body.items.all(item, item.tags.exists(tag, tag in ['a', 'b']))",
        "body.orders[0].items.exists_one(item, item.count == priority)",
        "attributes.exists(name, name.startsWith('x-'))",
        "body.exists(body, body == 1)",
        "body.text.contains('a literal')",
        "topic.matches('^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$')",
        "topic.matches(r'^a\\\\p$')",
        "type(body) == map && body != {'a': [1, 2.5, 3u, b'x', null]}",
        " || ".join(f"topic == '{n}'" for n in range(64)),
        "topic in [" + ", ".join(f"'{n}'" for n in range(500)) + "]",
    ],
)
def test_filters_within_the_limits_are_accepted(source: str) -> None:
    compile_filter(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("body.map(x, x) == []", "map or filter"),
        ("size(body.filter(x, x > 1)) > 3", "map or filter"),
        ("body.map(x, x + x).map(x, x + x).exists(x, x == 'a')", "a computed value|map or filter"),
        ("[body.text + body.text].exists(x, [x + x].exists(y, y == ''))", "a computed value"),
        ("['a', 'b'].exists(x, x == 'a')", "a computed value"),
        ("(body.a + body.b).exists(x, x == 1)", "a computed value"),
        ("body.list[priority].exists(x, x == 1)", "a computed value"),
        ("body.all(x, body == body)", "uses 'body' inside a loop"),
        ("body.all(x, x == .body)", "uses 'body' inside a loop"),
        ("body.exists(body, .body == 1)", "uses 'body' inside a loop"),
        ("body.exists(x, topic.contains('a'))", "uses 'topic' inside a loop"),
        ("body.exists(x, attributes[x] == 'a')", "uses 'attributes' inside a loop"),
        ("body.exists(x, x.list.exists(y, x.text == y))", "uses 'x' inside a loop"),
        ("body.exists(x, x.list.exists(y, body.z == y))", "uses 'body' inside a loop"),
        ("body.exists(body, body.all(y, body == y))", "uses 'body' inside a loop"),
        ("body.a.contains(body.b)", "passes contains a computed value"),
        ("topic.matches(attributes.pattern)", "passes matches a computed value"),
        ("matches(topic, topic)", "passes matches a computed value"),
        ("topic.matches('a' + 'b')", "passes matches a computed value"),
        ("body.exists(x, x.matches('a'))", "matches inside a loop"),
        (r"topic.matches(r'\pL')", "Unicode class"),
        (r"topic.matches(r'a[\P{Greek}]')", "Unicode class"),
        (r"topic.matches(r'\\\pL')", "Unicode class"),
        ("topic.matches('a{513}')", "513 characters"),
        ("topic.matches('(a{30}){30}')", "written out"),
        ("topic.matches('[ab]{100}(c|d){50}')", "written out"),
        ("topic.matches('[[:alpha:]]{100}')", "written out"),
        ("topic.matches('x{300}') || topic.matches('y{300,}')", "600 characters"),
        (" || ".join(["topic == 'a'"] * 65), "names variables 65 times"),
        ("body.all(x, " + " && ".join(["x == 1"] * 64) + ")", "names variables 65 times"),
    ],
)
def test_a_filter_beyond_the_limits_is_refused_with_the_rule(source: str, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason):
        compile_filter(source)


def test_a_loop_of_more_than_ten_thousand_steps_is_an_error() -> None:
    filter = compile_filter("body.all(x, x == 0)")

    assert matches(filter, [0] * 9_000) is Match.YES
    assert matches(filter, [0] * 11_000) is Match.ERROR


def test_the_steps_of_inner_loops_count_too() -> None:
    filter = compile_filter("body.all(row, row.all(cell, cell == 0))")

    assert matches(filter, [[0] * 90] * 90) is Match.YES
    assert matches(filter, [[0] * 110] * 110) is Match.ERROR


def test_regular_expressions_look_at_bodies_up_to_64_kib() -> None:
    filter = compile_filter("body.text.matches('z$')")

    assert matches(filter, {"text": "a" * 60_000 + "z"}) is Match.YES
    assert matches(filter, {"text": "a" * 70_000 + "z"}) is Match.ERROR


def test_regular_expressions_over_the_rest_do_not_mind_a_large_body() -> None:
    assert matches(compile_filter("topic.matches('^t$')"), {"text": "a" * 70_000}) is Match.YES


def random_text(length: int) -> str:
    return "".join(random.Random(1).choices("ab", k=length))


@pytest.mark.parametrize(
    ("source", "body"),
    [
        pytest.param(
            " && ".join(["body == body"] * 32), [0] * (MEBIBYTE // 4), id="large comparisons"
        ),
        pytest.param(
            " || ".join(["body.contains('zzzzq')"] * 64), "z" * (MEBIBYTE - 2), id="many searches"
        ),
        pytest.param(f"body.contains('{'z' * 4000}q')", "z" * (MEBIBYTE - 2), id="a long search"),
        pytest.param(
            "body.all(x, " + " && ".join(["!x.contains('zzzq')"] * 60) + ")",
            ["z" * 100] * 9_999,
            id="searches in a loop",
        ),
        pytest.param(
            "body.matches('(a|b)*a(a|b){80}c')", random_text(65_000), id="a regular expression"
        ),
        pytest.param(
            " || ".join(["body.matches('.*a.{50}c')"] * 9),
            random_text(65_000),
            id="several of them",
        ),
    ],
)
def test_the_dearest_filters_that_are_accepted_end_soon(source: str, body: object) -> None:
    filter = compile_filter(source)

    started = time.process_time()
    verdict = matches(filter, body)
    elapsed_seconds = time.process_time() - started

    assert verdict in Match
    # Up to 0.9 s on a shared machine; the rest is room for a slower one.
    assert elapsed_seconds < 10.0

from __future__ import annotations

import contextlib

import pytest
from cel_expr_python import cel
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.filter_syntax import Build, Call, Field, Literal, Loop, Name, Node, parse

ENVIRONMENT = cel.NewEnv(variables={"body": cel.Type.DYN, "topic": cel.Type.STRING})


def tree(source: str) -> Node:
    return parse(ENVIRONMENT.compile(source).serialize())


def test_names_fields_and_literals_are_read() -> None:
    assert tree('body.a == "x"') == Call(
        function="_==_", arguments=(Field(operand=Name(name="body")), Literal(text="x"))
    )
    assert tree('topic == ""') == Call(
        function="_==_", arguments=(Name(name="topic"), Literal(text=""))
    )


@pytest.mark.parametrize("literal", ["1", "1u", "1.5", "true", "null", "b'x'"])
def test_a_literal_that_is_no_string_has_no_text(literal: str) -> None:
    assert tree(f"body == {literal}") == Call(
        function="_==_", arguments=(Name(name="body"), Literal(text=None))
    )


def test_the_target_of_a_method_is_its_first_argument() -> None:
    assert tree('topic.startsWith("a")') == Call(
        function="startsWith", arguments=(Name(name="topic"), Literal(text="a"))
    )


def test_lists_and_maps_are_read_with_keys_and_values() -> None:
    assert tree('[topic, "a"]') == Build(parts=(Name(name="topic"), Literal(text="a")))
    assert tree('{"a": topic}') == Build(parts=(Literal(text="a"), Name(name="topic")))


def test_a_macro_is_read_as_a_loop() -> None:
    loop = tree("body.a.exists(x, x == topic)")

    assert isinstance(loop, Loop)
    assert loop.variables == {"x"}
    assert loop.over == Field(operand=Name(name="body"))
    assert "topic" in repr(loop.body)


@given(st.binary())
def test_anything_else_is_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse(data)


def test_a_truncated_tree_is_a_value_error() -> None:
    whole = ENVIRONMENT.compile('body.a == "x"').serialize()

    for length in range(40):
        with pytest.raises(ValueError, match="CEL expression"):
            parse(whole[:length])

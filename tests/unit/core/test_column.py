from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.column import BLOCK_BITS, Column

BITS = 2
"""Blocks of four values, so that a few of them already make several blocks."""

# Around the borders where a value needs another byte, and where it is close to others or not.
_BORDERS = [0, 2**8, 2**16, 2**32, 2**63 - 2**16]
_NEAR = st.integers(-3, 3)
_UNSIGNED = st.builds(lambda border, by: max(border + by, 0), st.sampled_from(_BORDERS), _NEAR)
_WIDE = st.one_of(_UNSIGNED, st.just(2**64 - 1))
_SIGNED = st.builds(lambda value, sign: value * sign, _UNSIGNED, st.sampled_from([1, -1]))
_TYPES = [("Q", _WIDE), ("q", _SIGNED), ("I", st.integers(0, 2**32 - 1))]
_COLUMNS = st.one_of(
    [st.tuples(st.just(code), st.lists(values, max_size=18)) for code, values in _TYPES]
)


def grown(code: str, values: list[int]) -> Column:
    column = Column(code, BITS)
    for value in values:
        column.tail.append(value)
        if len(column.tail) == 1 << BITS:
            column.seal()
    return column


def content(column: Column) -> list[int]:
    return [column[at] for at in range(len(column))]


@given(_COLUMNS)
def test_values_come_back_from_their_positions(drawn: tuple[str, list[int]]) -> None:
    code, values = drawn
    column = grown(code, values)
    assert len(column) == len(values)
    assert content(column) == values
    assert len(column.tail) < 1 << BITS
    for low in range(len(values) + 1):
        for high in range(low, len(values) + 1):
            assert column.part(low, high) == array(code, values[low:high])


@given(_COLUMNS, st.data())
def test_a_column_that_is_extended_is_like_one_that_grew(
    drawn: tuple[str, list[int]], data: st.DataObject
) -> None:
    code, values = drawn
    border = data.draw(st.integers(0, len(values)))
    column = grown(code, values[:border])
    column.extend(array(code, values[border:]))
    assert content(column) == values
    assert column.tail == grown(code, values).tail


@given(_COLUMNS)
def test_searches_agree_with_those_of_a_list(drawn: tuple[str, list[int]]) -> None:
    code, values = drawn
    values.sort()
    column = grown(code, values)
    for near in {0, *values}:
        for value in (near - 1, near, near + 1):
            assert column.bisect_left(value) == bisect_left(values, value)
            assert column.bisect_right(value) == bisect_right(values, value)


@given(_COLUMNS, st.data())
def test_blocks_are_dropped_from_the_front(
    drawn: tuple[str, list[int]], data: st.DataObject
) -> None:
    code, values = drawn
    values.sort()
    column = grown(code, values)
    blocks = data.draw(st.integers(0, len(values) >> BITS))
    column.drop(blocks)
    column.extend(array(code, values[-1:] * 5))
    left = values[blocks << BITS :] + values[-1:] * 5
    assert content(column) == left
    assert [column.bisect_left(value) for value in left] == [left.index(value) for value in left]


@given(st.sampled_from(_TYPES), st.data())
def test_values_are_replaced_in_place(
    kind: tuple[str, st.SearchStrategy[int]], data: st.DataObject
) -> None:
    code, one = kind
    values = data.draw(st.lists(one, max_size=18))
    at = data.draw(st.integers(0, len(values)))
    others = data.draw(st.lists(one, max_size=len(values) - at))
    column = grown(code, values)
    column.replace(at, array(code, others))
    values[at : at + len(others)] = others
    assert content(column) == values
    assert column.part(0, len(column)) == array(code, values)


@given(st.lists(_UNSIGNED, max_size=18))
def test_searches_find_what_was_put_in_place(values: list[int]) -> None:
    values.sort()
    column = grown("Q", [0] * len(values))
    column.replace(0, array("Q", values))
    for value in values:
        assert column.bisect_left(value) == bisect_left(values, value)
        assert column.bisect_right(value) == bisect_right(values, value)


@pytest.mark.parametrize(
    ("step", "bytes_each"),
    [(0, 1), (1, 2), (60, 2), (300, 4), (2**20, 4), (2**30, 8)],
)
def test_the_closer_the_values_the_less_they_take(step: int, bytes_each: int) -> None:
    count = 8 << BLOCK_BITS
    column = Column("Q")
    # Each block begins where only the bytes that its own spread needs can differ.
    for start in range(8):
        base = (start + 1) << 50
        column.extend(array("Q", (base + step * at for at in range(1 << BLOCK_BITS))))
    assert len(column) == count
    taken = sum(sys.getsizeof(block) for block in column._blocks)
    assert count * bytes_each <= taken < count * (bytes_each + 0.2)

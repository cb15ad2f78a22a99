from __future__ import annotations

from penstock.core.groups import Groups


def test_the_first_of_a_group_may_go_and_the_others_are_parked() -> None:
    groups = Groups()
    assert groups.enter("a", 4, (), ()) == (True, None)
    assert groups.enter("b", 5, (), ()) == (True, None)
    assert groups.enter("a", 9, (), ()) == (False, None)
    assert groups.enter("a", 6, (), ()) == (False, None)
    assert groups.enter("a", 4, (), ()) == (True, None)
    assert groups.enter("a", 9, (), ()) == (False, None)
    assert groups.lines == {"a": [4, 6, 9], "b": [5]}
    assert groups.parked == 2


def test_the_next_may_go_when_the_head_leaves() -> None:
    groups = Groups({"a": [4, 6, 9]})
    assert groups.leave("a", 6) is None
    assert groups.leave("a", 4) == 9
    assert groups.leave("a", 9) is None
    assert groups.leave("a", 9) is None
    assert groups.lines == {}


def test_an_earlier_message_that_comes_back_goes_first() -> None:
    groups = Groups({"a": [4, 6]})
    assert groups.enter("a", 2, (), ()) == (True, 4)
    assert groups.lines == {"a": [2, 4, 6]}


def test_a_head_that_was_given_out_stays_and_what_comes_back_is_next() -> None:
    for leased, tried in (({4}, ()), ((), {4})):
        groups = Groups({"a": [4, 6]})
        assert groups.enter("a", 2, leased, tried) == (False, None)
        assert groups.lines == {"a": [4, 2, 6]}
        assert groups.leave("a", 4) == 2

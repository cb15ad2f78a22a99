from __future__ import annotations

from penstock.core.schedule import Schedule


def test_what_is_due_is_given_out_once_in_the_order_of_time() -> None:
    schedule = Schedule({7: 20})
    schedule.add(3, 30)
    schedule.add(9, 10)
    assert schedule.pop_due(9) == []
    assert schedule.pop_due(25) == [9, 7]
    assert schedule.pop_due(30) == [3]
    assert schedule.pop_due(99) == []


def test_a_moment_that_was_changed_or_dropped_is_passed_over() -> None:
    schedule = Schedule({1: 10, 2: 10})
    schedule.add(1, 20)
    del schedule.times[2]
    assert schedule.pop_due(10) == []
    assert schedule.pop_due(20) == [1]


def test_one_that_was_dropped_and_added_again_is_given_out_once() -> None:
    schedule = Schedule({1: 10})
    del schedule.times[1]
    schedule.add(1, 10)
    assert schedule.pop_due(10) == [1]


def test_after_a_rewind_all_are_given_out_again() -> None:
    schedule = Schedule({1: 10, 2: 20})
    assert schedule.pop_due(15) == [1]
    schedule.rewind()
    assert schedule.pop_due(15) == [1]
    assert schedule.pop_due(20) == [2]

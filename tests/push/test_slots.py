"""Who may call when there are more callers than calls at once."""

from __future__ import annotations

from penstock.push.slots import Slots


class Caller:
    """Wants as many as it can get."""

    def __init__(self, slots: Slots, *, is_suspect: bool = False) -> None:
        self._slots = slots
        self._is_suspect = is_suspect
        self.looks = 0
        self.held = 0
        self.wanted = 1

    @property
    def is_suspect(self) -> bool:
        self.looks += 1
        return self._is_suspect

    def pump(self) -> None:
        while self.held < self.wanted and self._slots.take(self):
            self.held += 1

    def want(self, count: int) -> int:
        self.wanted = count
        self.pump()
        return self.held

    def finish(self) -> None:
        self.held -= 1
        self.wanted -= 1
        self._slots.give(self)


def test_one_that_wants_all_gets_the_first_half() -> None:
    assert Caller(Slots(160)).want(1000) == 80


def test_those_that_come_later_get_a_few_from_the_second_half() -> None:
    slots = Slots(160)
    Caller(slots).want(1000)
    assert [Caller(slots).want(1000) for _ in range(8)] == [10] * 8
    assert slots.busy == 160


def test_there_are_never_more_than_the_total() -> None:
    slots = Slots(16)
    assert sum(Caller(slots).want(3) for _ in range(100)) == 16
    assert slots.busy == 16


def test_who_has_none_is_told_in_turn_when_there_is_one_again() -> None:
    # Given two who came too late
    slots = Slots(2)
    first, second = Caller(slots), Caller(slots)
    first.want(1)
    second.want(1)
    third, fourth = Caller(slots), Caller(slots)
    assert (third.want(1), fourth.want(1)) == (0, 0)
    assert slots.is_wanted_from(first)
    # When the others are done, one after the other
    first.finish()
    assert (third.held, fourth.held) == (1, 0)
    second.finish()
    # Then each has got one
    assert (third.held, fourth.held) == (1, 1)
    assert not slots.is_wanted_from(third)


def test_the_dead_leave_three_quarters_to_the_living() -> None:
    slots = Slots(160)
    dead = [Caller(slots, is_suspect=True) for _ in range(1000)]
    assert sum(one.want(1) for one in dead) == 40
    assert [Caller(slots).want(8) for _ in range(15)] == [8] * 15


def test_the_dead_who_wait_cost_the_living_nothing() -> None:
    # Given many who wait, because others of their kind have all they may have
    slots = Slots(160)
    dead = [Caller(slots, is_suspect=True) for _ in range(1000)]
    for one in dead:
        one.want(1)
        one.looks = 0
    # When one that is well calls
    living = Caller(slots)
    for _ in range(3):
        living.want(1)
        assert not slots.is_wanted_from(living)
        living.finish()
    # Then nobody looks at the others
    assert sum(one.looks for one in dead) == 0


def test_the_dead_take_turns_with_each_other_and_with_the_living() -> None:
    # Given all slots taken, and in line: one that is dead, one that is well, one that is dead
    slots = Slots(4)
    busy = [Caller(slots) for _ in range(4)]
    for one in busy:
        one.want(1)
    dead, living, other = (
        Caller(slots, is_suspect=True),
        Caller(slots),
        Caller(slots, is_suspect=True),
    )
    for one in (dead, living, other):
        one.want(1)
    # When slots come back
    busy[0].finish()
    assert (dead.held, living.held, other.held) == (1, 0, 0)
    busy[1].finish()
    assert (dead.held, living.held, other.held) == (1, 1, 0)
    busy[2].finish()
    # Then the second waits until the first of its kind is done
    assert (dead.held, living.held, other.held) == (1, 1, 0)
    assert slots.is_wanted_from(dead)
    assert not slots.is_wanted_from(living)
    dead.finish()
    assert other.held == 1


def test_one_that_recovers_no_longer_counts_among_the_dead() -> None:
    slots = Slots(16)
    first, second = Caller(slots, is_suspect=True), Caller(slots, is_suspect=True)
    assert first.want(4) == 4
    assert second.want(1) == 0
    # When a call of the first succeeds
    first._is_suspect = False
    first.finish()
    # Then the second may have what is for the dead
    assert second.held == 1


def test_one_that_wants_none_any_more_does_not_stay_in_line() -> None:
    slots = Slots(1)
    first, second = Caller(slots), Caller(slots)
    first.want(1)
    second.want(1)
    second.wanted = 0
    first.finish()
    assert first.want(1) == 1
    assert not slots.is_wanted_from(first)


def test_one_that_no_longer_waits_is_forgotten() -> None:
    slots = Slots(1)
    first, second = Caller(slots), Caller(slots)
    first.want(1)
    second.want(1)
    slots.forget(second)
    first.finish()
    assert second.held == 0
    assert slots.busy == 0


def test_with_a_single_slot_everyone_gets_a_turn() -> None:
    slots = Slots(1)
    callers = [Caller(slots, is_suspect=number % 2 == 0) for number in range(5)]
    for caller in callers:
        caller.want(1)
    for caller in callers:
        assert caller.held == 1
        caller.finish()
    assert slots.busy == 0

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.core.runs import Runs, runs_of

TOP = 40
_INDEX = st.integers(0, TOP)
_RUN = st.tuples(_INDEX, _INDEX).map(sorted).map(tuple)


def as_set(runs: list[tuple[int, int]]) -> set[int]:
    return {index for start, stop in runs for index in range(start, stop)}


class RunsAgainstASet(RuleBasedStateMachine):
    """Whatever is done to runs is done to a plain set too."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = Runs()
        self.model: set[int] = set()

    @rule(run=_RUN)
    def add(self, run: tuple[int, int]) -> None:
        new = set(range(*run)) - self.model
        assert self.runs.add(*run) == len(new)
        self.model |= new

    @rule(run=_RUN)
    def discard(self, run: tuple[int, int]) -> None:
        gone = set(range(*run)) & self.model
        assert self.runs.discard(*run) == len(gone)
        self.model -= gone

    @rule(runs=st.lists(_RUN, max_size=3), at_the_end=st.booleans())
    def extend(self, runs: list[tuple[int, int]], at_the_end: bool) -> None:
        later = Runs(runs)
        if at_the_end:
            later.discard(0, self.runs.stop)
        self.runs.extend(later)
        self.model |= as_set(list(later))

    @rule(run=_RUN)
    def look_within_and_outside(self, run: tuple[int, int]) -> None:
        asked = set(range(*run))
        within, outside = list(self.runs.within(*run)), list(self.runs.outside(*run))
        assert as_set(within) == asked & self.model
        assert as_set(outside) == asked - self.model
        assert within == sorted(within)
        assert outside == sorted(outside)
        assert self.runs.count_within(*run) == len(asked & self.model)

    @rule(index=_INDEX)
    def look_at_one(self, index: int) -> None:
        assert (index in self.runs) == (index in self.model)
        ahead = [i for i in self.model if i >= index]
        assert self.runs.next(index) == min(ahead, default=None)
        assert self.runs.next_gap(index) == next(
            i for i in range(index, TOP + 2) if i not in self.model
        )

    @rule()
    def copy(self) -> None:
        twin = self.runs.copy()
        assert twin == self.runs
        twin.add(TOP + 5, TOP + 6)
        assert twin != self.runs

    @rule()
    def dump_and_load(self) -> None:
        loaded = Runs.load(self.runs.dump())
        assert loaded == self.runs
        assert loaded.count == self.runs.count

    @invariant()
    def is_the_same_set_in_as_few_runs_as_can_be(self) -> None:
        runs = list(self.runs)
        assert runs == runs_of(self.model)
        assert [i for run in self.runs for i in range(*run)] == sorted(self.model)
        assert self.runs.count == len(self.model)
        assert len(self.runs) == len(runs)
        assert self.runs.first == min(self.model, default=None)
        assert self.runs.stop == max(self.model, default=-1) + 1
        for (_, stop), (start, _) in pairwise(runs):
            assert stop < start


TestRunsAgainstASet = RunsAgainstASet.TestCase


@given(st.lists(_INDEX))
def test_runs_of_any_indexes_hold_each_of_them_once(indexes: list[int]) -> None:
    runs = runs_of(indexes)
    assert [i for start, stop in runs for i in range(start, stop)] == sorted(set(indexes))
    assert list(Runs(runs)) == runs


def test_a_million_contiguous_indexes_are_one_run() -> None:
    runs = Runs()
    for start in range(0, 1_000_000, 1000):
        runs.add(start, start + 1000)
    assert (len(runs), runs.count) == (1, 1_000_000)


def test_runs_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match="mutable"):
        hash(Runs())


def test_runs_are_equal_if_both_their_ends_are() -> None:
    assert Runs([(0, 2), (5, 7)]) == Runs([(5, 7), (0, 2)])
    assert Runs([(0, 2), (5, 7)]) != Runs([(0, 3), (5, 7)])
    assert Runs([(0, 2), (5, 7)]) != Runs([(0, 2), (4, 7)])

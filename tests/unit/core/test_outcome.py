"""The outcomes of an ack up to an index."""

from __future__ import annotations

import pytest

from penstock.core.outcome import AllDone, Outcome


def test_it_is_like_the_list_that_it_stands_for() -> None:
    outcomes = AllDone(3)
    assert outcomes == [Outcome.DONE] * 3 == list(outcomes)
    assert (outcomes[-1], outcomes[1:], len(outcomes)) == (Outcome.DONE, AllDone(2), 3)
    with pytest.raises(IndexError):
        outcomes[3]


def test_others_are_not_equal() -> None:
    assert AllDone(1) != [Outcome.NOT_FOUND]
    assert AllDone(1) != [Outcome.DONE] * 2
    assert AllDone(1) != AllDone(0)
    assert AllDone(0) != ()


def test_it_is_no_longer_for_more() -> None:
    assert AllDone(10**12).__sizeof__() == AllDone(0).__sizeof__()
    assert len(AllDone(10**12)) == 10**12
    assert AllDone(10**12) == AllDone(10**12)

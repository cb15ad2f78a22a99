from __future__ import annotations

import pytest

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.verdict import Verdict, absent, judge_ratio, judge_value


@pytest.mark.parametrize(
    ("bar", "figure", "holds"),
    [
        (at_least(10), 10.0, True),
        (at_least(10), 9.99, False),
        (at_most(1.3), 1.3, True),
        (at_most(1.3), 1.31, False),
    ],
)
def test_a_figure_equal_to_the_limit_meets_the_bar(bar: Bar, figure: float, holds: bool) -> None:
    assert bar.holds(figure) is holds


def test_a_ratio_is_taken_within_each_round() -> None:
    # Given a machine that was half as fast for everyone in the second round
    verdict = _ratio(ours=[100, 50, 100], reference=[10, 5, 10])

    # Then the ratio is that of the rounds
    assert verdict.figure == 10
    assert (verdict.ours, verdict.reference) == (100, 10)
    assert verdict.status == "ok"


def test_one_lucky_round_of_three_does_not_meet_the_bar() -> None:
    verdict = _ratio(ours=[90, 900, 90], reference=[10, 10, 10])

    assert verdict.figure == 9
    assert verdict.status == "missed"


def test_a_met_bar_proves_nothing_while_a_peer_is_missing() -> None:
    assert _ratio(ours=[100], reference=[10], missing=True).status == "missing"


def test_a_missed_bar_is_missed_whichever_peer_is_missing() -> None:
    assert _ratio(ours=[10], reference=[10], missing=True).status == "missed"


def test_without_any_peer_there_is_no_reference() -> None:
    verdict = absent(what="w", unit="u", ours=[3, 1, 2], reference_name="p", bar=at_least(10))

    assert (verdict.ours, verdict.reference, verdict.status) == (2, None, "missing")


def test_a_value_is_the_median_of_the_rounds() -> None:
    verdict = judge_value(what="w", unit="s", ours=[9.0, 4.0, 4.5], bar=at_most(5, "s"))

    assert (verdict.figure, verdict.status) == (4.5, "ok")


def _ratio(*, ours: list[float], reference: list[float], missing: bool = False) -> Verdict:
    return judge_ratio(
        what="w",
        unit="u",
        ours=ours,
        reference_name="r",
        reference=reference,
        bar=at_least(10),
        missing=missing,
    )

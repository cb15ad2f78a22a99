"""A verdict: what was measured, beside its reference and its bar."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

from benchmarks.harness.bar import Bar

Status = Literal["ok", "missed", "missing", "shown"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `figure` is the number that the bar judges."""

    what: str
    unit: str
    ours: float
    reference_name: str | None
    reference: float | None
    figure: float
    bar: Bar | None
    """None where a figure is only shown, for scale."""
    status: Status
    """`missing`: a peer of the comparison is not installed, so nothing is proven."""


def judge_ratio(
    *,
    what: str,
    unit: str,
    ours: Sequence[float],
    reference_name: str,
    reference: Sequence[float],
    bar: Bar | None,
    missing: bool = False,
) -> Verdict:
    """The median over rounds of ours / reference.

    The ratio is taken within each round, because both sides of a round had the same machine;
    so it may differ a little from the ratio of the two medians shown beside it.
    """
    figure = median(a / b for a, b in zip(ours, reference, strict=True))
    return Verdict(
        what=what,
        unit=unit,
        ours=median(ours),
        reference_name=reference_name,
        reference=median(reference),
        figure=figure,
        bar=bar,
        status=_status(bar, figure, missing=missing),
    )


def judge_value(*, what: str, unit: str, ours: Sequence[float], bar: Bar) -> Verdict:
    """The median over rounds of ours, held to an absolute bar."""
    figure = median(ours)
    return Verdict(
        what=what,
        unit=unit,
        ours=figure,
        reference_name=None,
        reference=None,
        figure=figure,
        bar=bar,
        status=_status(bar, figure, missing=False),
    )


def absent(
    *, what: str, unit: str, ours: Sequence[float], reference_name: str, bar: Bar | None
) -> Verdict:
    """The verdict where there is nothing to compare with, because no peer of it is installed."""
    return Verdict(
        what=what,
        unit=unit,
        ours=median(ours),
        reference_name=reference_name,
        reference=None,
        figure=0.0,
        bar=bar,
        status="missing",
    )


def _status(bar: Bar | None, figure: float, *, missing: bool) -> Status:
    if bar is None:
        return "shown"
    # A bar that is missed stays missed, whoever else might have been in the comparison.
    if not bar.holds(figure):
        return "missed"
    return "missing" if missing else "ok"

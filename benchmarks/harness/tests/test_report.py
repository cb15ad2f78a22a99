from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.harness.bar import at_most
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.report import Report, RowReport
from benchmarks.harness.table import draw, show
from benchmarks.harness.verdict import judge_value

FAST = judge_value(what="fast", unit="s", ours=[1.0], bar=at_most(5, "s"))
SLOW = judge_value(what="slow", unit="s", ours=[6.0], bar=at_most(5, "s"))


def test_a_run_with_every_bar_met_has_no_failures() -> None:
    assert _report(_row(verdicts=(FAST,))).failures == ()


def test_a_missed_bar_is_named_with_its_figure_and_limit() -> None:
    report = _report(_row(verdicts=(FAST, SLOW)))

    assert report.failures == ("start: slow: 6, the bar is ≤ 5 s",)


def test_a_row_that_broke_is_a_failure() -> None:
    assert _report(_row(error="OSError()")).failures == ("start: OSError()",)


def test_a_missing_peer_is_a_failure_even_if_every_bar_is_met() -> None:
    report = _report(_row(verdicts=(FAST,)), missing_peers=("huey",))

    assert report.failures == ("the peer huey is not installed",)


def test_a_report_survives_json() -> None:
    report = _report(_row(verdicts=(FAST, SLOW)))

    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_the_table_shows_verdicts_and_errors() -> None:
    # Given
    out = StringIO()
    report = _report(_row(verdicts=(FAST, SLOW)), _row(error="OSError('disk')"))

    # When
    Console(file=out, width=140).print(draw(report))

    # Then
    for text in ("start: fast", "missed", "≤ 5 s", "OSError('disk')", "failed"):
        assert text in out.getvalue()


def test_figures_are_shown_at_the_precision_that_matters() -> None:
    assert show(214_567.8, "messages/s") == "214,568 messages/s"
    assert show(0.39213, "ms") == "0.392 ms"


def _row(**fields: object) -> RowReport:
    return msgspec.structs.replace(RowReport(name="start", what="start", seconds=1.0), **fields)


def _report(*rows: RowReport, missing_peers: tuple[str, ...] = ()) -> Report:
    return Report(
        quick=False,
        rounds=3,
        loop="uvloop",
        machine=describe_machine(Path()),
        missing_peers=missing_peers,
        rows=rows,
    )

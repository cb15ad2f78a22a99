"""The table that a run prints."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from benchmarks.harness.bar import TIMES
from benchmarks.harness.report import Report, RowReport
from benchmarks.harness.verdict import Verdict

STATUS = {
    "ok": "[green]ok[/]",
    "missed": "[red]missed[/]",
    "missing": "[yellow]peer missing[/]",
    "shown": "",
}


def draw(report: Report) -> Table:
    machine = report.machine
    table = Table(
        title=f"{report.subject}: {machine.cores} cores, {machine.filesystem}, "
        f"Python {machine.python}, {report.loop}, medians of {report.rounds}"
        + (" (quick: not the sizes of the bars)" if report.quick else ""),
        title_justify="left",
        show_lines=True,
    )
    table.add_column("what", ratio=4, overflow="fold")
    table.add_column("ours", justify="right")
    table.add_column("reference", justify="right", ratio=2, overflow="fold")
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in report.rows:
        if row.error is not None:
            table.add_row(row.what, "", escape(row.error), "", "", "[red]failed[/]")
        for verdict in row.verdicts:
            table.add_row(*_cells(row, verdict))
    return table


def _cells(row: RowReport, verdict: Verdict) -> tuple[str, ...]:
    reference = ""
    if verdict.reference_name is not None:
        value = "" if verdict.reference is None else show(verdict.reference, verdict.unit)
        reference = f"{verdict.reference_name}\n{value}"
    ratio = ""
    is_ratio = verdict.bar is None or verdict.bar.unit == TIMES
    if is_ratio and verdict.reference is not None:
        ratio = f"{verdict.figure:.2f} {TIMES}"
    return (
        f"{row.what}: {verdict.what}",
        show(verdict.ours, verdict.unit),
        reference,
        ratio,
        "" if verdict.bar is None else str(verdict.bar),
        STATUS[verdict.status],
    )


def show(value: float, unit: str) -> str:
    """A figure as a reader wants it: thousands apart when large, three digits when small."""
    digits = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    return f"{digits} {unit}"

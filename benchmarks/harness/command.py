"""What the command lines of all benchmarks share: options, measuring a row, and the report."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Protocol, TypeVar

import msgspec
from rich.console import Console

from benchmarks.harness.progress import Screen
from benchmarks.harness.report import Report, RowReport
from benchmarks.harness.table import draw
from benchmarks.harness.verdict import Verdict


class Named(Protocol):
    """A row, as far as the command line knows it."""

    @property
    def name(self) -> str: ...
    @property
    def what(self) -> str: ...


class Outcome(Protocol):
    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...
    @property
    def samples(self) -> dict[str, list[float]]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


R = TypeVar("R", bound=Named)


def make_parser(
    name: str,
    rows: Iterable[Named],
    *,
    description: str | None,
    rounds: int = 3,
    quick: str = "small sizes, one round, no bars",
) -> argparse.ArgumentParser:
    """Of ``python -m benchmarks.<name>``; a benchmark adds what is its own."""
    names = [row.name for row in rows]
    results = Path(f"benchmarks/results/{name}.json")
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is missed")
    parser.add_argument("--json", type=Path, default=results, help=f"default: {results}")
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="NAME",
        help="one row (may be given again): " + ", ".join(names),
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--rounds", type=int, help=f"default: {rounds}")
    return parser


def add_directory(parser: argparse.ArgumentParser) -> None:
    """For a benchmark whose data goes to the disk."""
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where the data goes; not a tmpfs (default: .)"
    )


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    options = parser.parse_args(arguments)
    if options.check and options.quick:
        parser.error("--check needs the full sizes: the bars are not set for --quick")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def measure_rows(
    rows: Iterable[R],
    options: argparse.Namespace,
    screen: Screen,
    measure: Callable[[R], Outcome],
) -> tuple[RowReport, ...]:
    """Those that were asked for, one after the other."""
    return tuple(
        _measure_row(row, screen, measure)
        for row in rows
        if options.only is None or row.name in options.only
    )


def _measure_row(row: R, screen: Screen, measure: Callable[[R], Outcome]) -> RowReport:
    screen.say(f"{row.name}: {row.what}")
    # What the row before wrote must not be flushed at this one's expense.
    os.sync()
    began = perf_counter()
    try:
        outcome = measure(row)
    except Exception as error:  # one row's failure must not cost the figures of the others
        screen.say(f"{row.name} failed: {error!r}")
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


def finish(report: Report, options: argparse.Namespace) -> int:
    """Print the report and write it down; returns the status to exit with.

    That is 1 if a row could not finish, or if `--check` finds a bar missed or a peer missing.
    """
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(draw(report))
    for row in report.rows:
        for note in row.notes:
            console.print(f"{row.name}: {note}", highlight=False, markup=False)
    for needs in report.missing_peers:
        console.print(
            f"Skipped, because it is not installed: {needs} "
            "(pip install 'penstock[bench]' brings those of Python)",
            markup=False,
        )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    print(f"written to {options.json}")
    if not options.check:
        return 1 if any(row.error for row in report.rows) else 0
    for failure in report.failures:
        print(f"FAILED {failure}")
    return 1 if report.failures else 0


def warn_of_memory(filesystem: str, root: Path, screen: Screen) -> None:
    if filesystem in ("tmpfs", "ramfs"):
        screen.say(f"{root} is on a {filesystem}: a sync costs nothing there. Use --dir.")

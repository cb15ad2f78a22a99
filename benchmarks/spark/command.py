"""The command line: which rows run, and with what status it ends."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.console import Console

from benchmarks.engine.machine import describe_machine
from benchmarks.engine.progress import Screen
from benchmarks.engine.report import Report, RowReport
from benchmarks.engine.table import draw
from benchmarks.spark.bench import Bench, bench
from benchmarks.spark.rows import ROWS, Row, encode

RESULTS = Path("benchmarks/results/spark.json")
PACKAGES = ("penstock", "pyspark", "pyarrow")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a row could not finish, or if `--check` finds a bar missed."""
    options = _parse(arguments)
    screen = Screen(Console(stderr=True))
    with TemporaryDirectory(prefix=".bench-", dir=options.dir) as root:
        report = _measure(options, Path(root).absolute(), screen)
    Console(width=None if sys.stdout.isatty() else 140).print(draw(report))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(encode(report))
    print(f"written to {options.json}")
    if not options.check:
        return 1 if any(row.error for row in report.rows) else 0
    for failure in report.failures:
        print(f"FAILED {failure}")
    return 1 if report.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is missed")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"default: {RESULTS}")
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="NAME",
        help="one row (may be given again): " + ", ".join(names),
    )
    parser.add_argument("--quick", action="store_true", help="100,000 messages, one round, no bars")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--memory", default="2g", help="of Spark's driver (default: 2g)")
    parser.add_argument("--dir", type=Path, default=Path(), help="where the data goes; not a tmpfs")
    options = parser.parse_args(arguments)
    if options.check and options.quick:
        parser.error("--check needs the full sizes: the bars are not set for --quick")
    return options


def _measure(options: argparse.Namespace, root: Path, screen: Screen) -> Report:
    messages, rounds = (100_000, 1) if options.quick else (1_000_000, options.rounds)
    wanted = [row for row in ROWS if options.only is None or row.name in options.only]
    with bench(root, screen, messages=messages, rounds=rounds, memory=options.memory) as made:
        found = tuple(_measure_row(row, made) for row in wanted)
    return Report(
        subject="Penstock and Spark",
        quick=options.quick,
        rounds=rounds,
        loop="uvloop",
        machine=describe_machine(root, PACKAGES),
        missing_peers=(),
        rows=found,
    )


def _measure_row(row: Row, made: Bench) -> RowReport:
    made.screen.say(f"{row.name}: {row.what}")
    os.sync()
    began = perf_counter()
    try:
        outcome = row.measure(made)
    except Exception as error:  # one row's failure must not cost the figures of the others
        made.screen.say(f"{row.name} failed: {error!r}")
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

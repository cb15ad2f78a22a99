"""The command line: which rows run, and with what status it ends."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.harness import command
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.progress import Screen
from benchmarks.harness.report import Report
from benchmarks.spark.bench import bench
from benchmarks.spark.rows import ROWS

PACKAGES = ("penstock", "pyspark", "pyarrow")
ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the status to exit with."""
    parser = command.make_parser(
        "spark",
        ROWS,
        description=__doc__,
        rounds=ROUNDS,
        quick="100,000 messages, one round, no bars",
    )
    command.add_directory(parser)
    parser.add_argument("--memory", default="2g", help="of Spark's driver (default: 2g)")
    options = command.parse(parser, arguments)
    screen = Screen(Console(stderr=True))
    with TemporaryDirectory(prefix=".bench-", dir=options.dir) as root:
        report = _measure(options, Path(root).absolute(), screen)
    return command.finish(report, options)


def _measure(options: argparse.Namespace, root: Path, screen: Screen) -> Report:
    messages, rounds = (100_000, 1) if options.quick else (1_000_000, options.rounds or ROUNDS)
    with bench(root, screen, messages=messages, rounds=rounds, memory=options.memory) as made:
        found = command.measure_rows(ROWS, options, screen, lambda row: row.measure(made))
    return Report(
        subject="Penstock and Spark",
        quick=options.quick,
        rounds=rounds,
        loop="uvloop",
        machine=describe_machine(root, PACKAGES),
        missing_peers=(),
        rows=found,
    )

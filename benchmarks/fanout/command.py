"""The command line: which rows run, where, and with what status it ends."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.fanout.rows import ROWS
from benchmarks.fanout.run import Run
from benchmarks.fanout.scale import FULL, QUICK
from benchmarks.harness import command
from benchmarks.harness.loops import run_on
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.progress import Screen
from benchmarks.harness.report import Report

PACKAGES = ("penstock", "aiohttp", "blacksheep", "uvicorn", "uvloop")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the status to exit with."""
    parser = command.make_parser("fanout", ROWS, description=__doc__, rounds=FULL.rounds)
    command.add_directory(parser)
    options = command.parse(parser, arguments)
    screen = Screen(Console(stderr=True))
    with TemporaryDirectory(prefix=".bench-", dir=options.dir) as root:
        report = _measure(options, Path(root), screen)
    return command.finish(report, options)


def _measure(options: argparse.Namespace, root: Path, screen: Screen) -> Report:
    scale = QUICK if options.quick else FULL
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    run = Run(scale=scale, root=root, screen=screen)
    machine = describe_machine(root, PACKAGES)
    command.warn_of_memory(machine.filesystem, root, screen)
    return Report(
        subject="Penstock calling back",
        quick=options.quick,
        rounds=scale.rounds,
        loop="uvloop",
        machine=machine,
        missing_peers=(),
        rows=command.measure_rows(
            ROWS, options, screen, lambda row: run_on("uvloop", row.measure(run))
        ),
    )

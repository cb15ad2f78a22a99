"""The command line: which rows run, where, and with what status it ends."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.engine.backlog import Backlog
from benchmarks.engine.peers import installed
from benchmarks.engine.rows import ROWS
from benchmarks.engine.run import Run
from benchmarks.engine.scale import FULL, QUICK
from benchmarks.harness import command
from benchmarks.harness.loops import run_on
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.progress import Screen
from benchmarks.harness.report import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the status to exit with."""
    parser = command.make_parser("engine", ROWS, description=__doc__, rounds=FULL.rounds)
    command.add_directory(parser)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    options = command.parse(parser, arguments)
    screen = Screen(Console(stderr=True))
    with TemporaryDirectory(prefix=".bench-", dir=options.dir) as root:
        report = _measure(options, Path(root), screen)
    return command.finish(report, options)


def _measure(options: argparse.Namespace, root: Path, screen: Screen) -> Report:
    scale = QUICK if options.quick else FULL
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    peers, missing = installed()
    run = Run(
        scale=scale,
        loop=options.loop,
        root=root,
        peers=peers,
        missing_peers=missing,
        backlog=Backlog(root / "backlog", messages=scale.backlog, loop=options.loop, screen=screen),
        screen=screen,
    )
    machine = describe_machine(root)
    command.warn_of_memory(machine.filesystem, root, screen)
    return Report(
        quick=options.quick,
        rounds=scale.rounds,
        loop=options.loop,
        machine=machine,
        missing_peers=missing,
        rows=command.measure_rows(
            ROWS, options, screen, lambda row: run_on(run.loop, row.measure(run))
        ),
    )

"""The command line: which rows run, where, and with what status it ends."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.harness import command
from benchmarks.harness.loops import run_on
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.progress import Screen
from benchmarks.harness.report import Report
from benchmarks.http import wrk
from benchmarks.http.peers import installed
from benchmarks.http.rows import ROWS
from benchmarks.http.run import Run
from benchmarks.http.scale import FULL, QUICK

PACKAGES = ("penstock", "blacksheep", "uvicorn", "uvloop", "aio-pika", "nats-py", "redis", "moto")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the status to exit with."""
    parser = command.make_parser(
        "http",
        ROWS,
        description=__doc__,
        rounds=FULL.rounds,
        quick="short turns, one round, no bars",
    )
    command.add_directory(parser)
    options = command.parse(parser, arguments)
    screen = Screen(Console(stderr=True))
    if not wrk.is_installed():
        screen.say("wrk makes the load, and it is not installed: apt-get install wrk")
        return 1
    with TemporaryDirectory(prefix=".bench-", dir=options.dir) as root:
        report = _measure(options, Path(root), screen)
    return command.finish(report, options)


def _measure(options: argparse.Namespace, root: Path, screen: Screen) -> Report:
    scale = QUICK if options.quick else FULL
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    peers, missing = installed()
    run = Run(scale=scale, root=root, peers=peers, missing=missing, screen=screen)
    machine = describe_machine(root, PACKAGES)
    command.warn_of_memory(machine.filesystem, root, screen)
    return Report(
        subject="Penstock over HTTP",
        quick=options.quick,
        rounds=scale.rounds,
        loop="uvloop",
        machine=machine,
        missing_peers=missing,
        rows=command.measure_rows(
            ROWS, options, screen, lambda row: run_on("uvloop", row.measure(run))
        ),
    )

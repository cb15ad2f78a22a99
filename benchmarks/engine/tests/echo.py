"""A child for the tests of `Child`: it greets, then doubles every number that it is told."""

from __future__ import annotations

import sys

import msgspec

from benchmarks.engine.process import read_task, say


class EchoTask(msgspec.Struct, frozen=True, kw_only=True):
    greeting: str


if __name__ == "__main__":
    greeting = read_task(EchoTask).greeting
    say(greeting)
    if greeting != "bye":
        for line in sys.stdin:
            say(2 * int(line))

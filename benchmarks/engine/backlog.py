"""The store with the long backlog, which several rows share."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from benchmarks.engine.children.fill import FillReport, FillTask
from benchmarks.engine.memory import Memory
from benchmarks.engine.process import Child
from benchmarks.harness.loops import LoopName
from benchmarks.harness.progress import Screen


class Backlog:
    """A data directory with a backlog, filled when it is first asked for.

    Whoever opens it leaves it cleanly stopped, and with a backlog no shorter than before.
    """

    def __init__(self, directory: Path, *, messages: int, loop: LoopName, screen: Screen) -> None:
        self.messages = messages
        self._directory = directory
        self._loop = loop
        self._screen = screen
        self._filled: Memory | None = None
        self.fill_seconds = 0.0

    @property
    def directory(self) -> Path:
        self._fill()
        return self._directory

    @property
    def memory_when_filled(self) -> Memory:
        """What the process that published the backlog held when the last message was in."""
        return self._fill()

    def _fill(self) -> Memory:
        if self._filled is not None:
            return self._filled
        began = perf_counter()
        task = FillTask(directory=str(self._directory), messages=self.messages, loop=self._loop)
        text = "filling the backlog (batches of 1,000, sync never)"
        with (
            self._screen.meter(text, total=self.messages) as meter,
            Child("benchmarks.engine.children.fill", task) as child,
        ):
            report = child.hear(FillReport)
            while report.memory is None:
                meter.reach(report.done)
                report = child.hear(FillReport)
            child.finish()
        # Filled without syncs: the first sync of whoever comes next would pay for all of it.
        os.sync()
        self.fill_seconds = perf_counter() - began
        self._filled = report.memory
        return report.memory

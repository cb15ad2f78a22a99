"""Progress of a run, on standard error, so that standard output is the table alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Meter:
    """One bar on the screen."""

    progress: Progress
    task: TaskID

    def reach(self, done: int) -> None:
        self.progress.update(self.task, completed=done)

    def advance(self) -> None:
        self.progress.advance(self.task)


class Screen:
    """Where a run says what it is doing."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    @contextmanager
    def meter(self, text: str, *, total: int) -> Iterator[Meter]:
        """A bar that is on the screen while the block runs."""
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        ) as progress:
            yield Meter(progress=progress, task=progress.add_task(text, total=total))

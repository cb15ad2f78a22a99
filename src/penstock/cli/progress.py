"""Progress bars on stderr, for bytes that are read or things that are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["counting", "reading"]


@contextmanager
def reading(
    total_bytes: int | None, *, is_shown: bool = True
) -> Iterator[Callable[[str, int], None]]:
    """Yields a function to call with a file's name and how many more of its bytes were read."""
    with _bar(DownloadColumn(binary_units=True), is_shown=is_shown) as progress:
        task = progress.add_task("reading", total=total_bytes)

        def advance(name: str, count: int) -> None:
            progress.update(task, description=name, advance=count)

        yield advance


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with how many more were done."""
    with _bar(MofNCompleteColumn()) as progress:
        task = progress.add_task(what, total=total)

        def advance(count: int) -> None:
            progress.update(task, advance=count)

        yield advance


def _bar(so_far: ProgressColumn, *, is_shown: bool = True) -> Progress:
    """A bar that is shown while its block runs, and not at all without a terminal.

    Without a total it only shows that something is going on.
    """
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        so_far,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (is_shown and console.is_terminal),
        redirect_stdout=False,
    )

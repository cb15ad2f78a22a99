"""A bar that moves with the bytes that have been read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["counting", "reading"]


@contextmanager
def reading(total_bytes: int | None) -> Iterator[Callable[[str, int], None]]:
    """Shows a bar on stderr while the block runs; gone afterwards, and absent without a terminal.

    Without a total it only shows that something goes on.

    Yields what is to be told the name of a file and how many more of its bytes have been read.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
    ) as progress:
        task = progress.add_task("reading", total=total_bytes)

        def advance(name: str, count: int) -> None:
            progress.update(task, description=name, advance=count)

        yield advance


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """As `reading`, for things that are counted. Yields what is to be told how many more."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
    ) as progress:
        task = progress.add_task(what, total=total)

        def advance(count: int) -> None:
            progress.update(task, advance=count)

        yield advance

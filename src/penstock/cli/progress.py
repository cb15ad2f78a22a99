"""A bar that moves with the bytes that have been read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["reading"]


@contextmanager
def reading(total_bytes: int) -> Iterator[Callable[[str, int], None]]:
    """Shows a bar on stderr while the block runs; gone afterwards, and absent without a terminal.

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
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("reading", total=total_bytes)

        def advance(name: str, count: int) -> None:
            progress.update(task, description=name, advance=count)

        yield advance

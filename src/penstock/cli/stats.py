"""``penstock stats``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import with_client
from penstock.cli.options import AsJson
from penstock.cli.output import (
    add_row,
    age,
    number,
    print_json,
    show,
    size,
    table,
    terminal_width,
)
from penstock.errors import QueueNotFound

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.client import Client
    from penstock.core.stats import QueueStats, SubscriptionStats

__all__ = ["stats"]

_OF_QUEUE = ("queue", "messages", "size", "in/s")
_OF_SUBSCRIPTION = (
    "ready",
    "in flight",
    "delayed",
    "held",
    "oldest",
    "out/s",
    "acked/s",
    "dead",
    "state",
)
# Columns that are left out of a table when the terminal is narrower than this.
_FOR_ROOMY = ("size", "delayed", "held", "oldest", "state")
_ROOMY = 115
_FOR_MORE = ("in/s", "out/s", "acked/s")
_NARROW = 75


@with_client
def stats(
    client: Client,
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            help="The queues to watch; all, if absent.", metavar="QUEUE", show_default=False
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show them once and exit.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", "-i", help="Seconds between two looks.", min=0.1)
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Watch queues and subscriptions.

    On a terminal a table that refreshes until it is interrupted; otherwise, and with --once, it is
    shown once. With --json there is one line each time. Rates are those since the look before.
    """
    if as_json:
        print_json(_look(client, queues))
        while not once:
            time.sleep(interval)
            print_json(_look(client, queues))
    elif once or not sys.stdout.isatty():
        show(_table(_look(client, queues), None, 0.0))
    else:
        _watch(client, queues, interval)


def _watch(client: Client, names: list[str] | None, interval: float) -> None:
    from rich.live import Live

    seen, at = _look(client, names), time.monotonic()
    with Live(_table(seen, None, 0.0), auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            found, now = _look(client, names), time.monotonic()
            live.update(_table(found, seen, now - at), refresh=True)
            seen, at = found, now


def _look(client: Client, names: list[str] | None) -> list[QueueStats]:
    found = client.stats()
    if not names:
        return found
    by_name = {one.name: one for one in found}
    for name in names:
        if name not in by_name:
            raise QueueNotFound(f"there is no queue {name!r}")
    return [by_name[name] for name in names]


def _table(found: list[QueueStats], before: list[QueueStats] | None, seconds: float) -> Table:
    width = terminal_width()
    left_out = {*(_FOR_ROOMY if width < _ROOMY else ()), *(_FOR_MORE if width < _NARROW else ())}
    names = [
        name for name in (*_OF_QUEUE, "subscription", *_OF_SUBSCRIPTION) if name not in left_out
    ]
    numbers = {*_OF_QUEUE, *_OF_SUBSCRIPTION} - {"queue", "state"}
    shown = table(*names, right=tuple(numbers), cut=("queue", "subscription"))
    earlier = {one.name: one for one in before or []}
    for queue in found:
        was = earlier.get(queue.name)
        own = {
            "queue": queue.name,
            "messages": number(queue.messages),
            "size": size(queue.bytes),
            "in/s": _rate(queue.next_index, was.next_index if was else None, seconds),
        }
        earlier_readers = {one.name: one for one in was.subscriptions} if was else {}
        rows = [
            _reader_cells(reader, earlier_readers.get(reader.name), seconds)
            for reader in queue.subscriptions
        ]
        for at, row in enumerate(rows or [{}]):
            # Only the first line of a queue has the figures of the queue itself.
            cells = row if at else own | row
            style = "dim" if cells.get("state") else ""
            add_row(shown, *(cells.get(name, "") for name in names), style=style)
    return shown


def _reader_cells(
    reader: SubscriptionStats, was: SubscriptionStats | None, seconds: float
) -> dict[str, str]:
    return {
        "subscription": reader.name,
        "ready": number(reader.ready),
        "in flight": number(reader.in_flight),
        "delayed": number(reader.delayed + reader.parked),
        "held": number(reader.held),
        "oldest": age(reader.oldest_unacked_seconds),
        "out/s": _rate(reader.delivered, was.delivered if was else None, seconds),
        "acked/s": _rate(reader.acked, was.acked if was else None, seconds),
        "dead": number(reader.dead_lettered - reader.replayed - reader.discarded),
        "state": "paused" if reader.config.paused else "",
    }


def _rate(count: int, before: int | None, seconds: float) -> str:
    if before is None or seconds <= 0:
        return ""
    # A queue that was deleted and made again counts from the beginning.
    return number(max(0, count - before) / seconds)

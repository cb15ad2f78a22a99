"""``penstock stats``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import with_client
from penstock.cli.output import AsJson, add_row, age, number, print_json, show, size, table
from penstock.errors import QueueNotFound

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.client import Client
    from penstock.core.stats import QueueStats, SubscriptionStats

__all__ = ["stats"]


@with_client
def stats(
    client: Client,
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            help="The queues to watch; all, if absent.", metavar="[QUEUE]...", show_default=False
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
    numbers = (
        "messages",
        "size",
        "published/s",
        "ready",
        "in flight",
        "delayed",
        "held",
        "oldest",
        "delivered/s",
        "acked/s",
        "dead",
    )
    shown = table("queue", *numbers[:3], "subscription", *numbers[3:], "", right=numbers)
    earlier = {one.name: one for one in before or []}
    for queue in found:
        was = earlier.get(queue.name)
        cells = [
            queue.name,
            number(queue.messages),
            size(queue.bytes),
            _rate(queue.next_index, was.next_index if was else None, seconds),
        ]
        earlier_readers = {one.name: one for one in was.subscriptions} if was else {}
        for reader in queue.subscriptions:
            add_row(
                shown,
                *cells,
                *_reader_cells(reader, earlier_readers.get(reader.name), seconds),
                style="dim" if reader.config.paused else "",
            )
            cells = [""] * len(cells)
    return shown


def _reader_cells(
    reader: SubscriptionStats, was: SubscriptionStats | None, seconds: float
) -> list[str]:
    return [
        reader.name,
        number(reader.ready),
        number(reader.in_flight),
        number(reader.delayed + reader.parked),
        number(reader.held),
        age(reader.oldest_unacked_seconds),
        _rate(reader.delivered, was.delivered if was else None, seconds),
        _rate(reader.acked, was.acked if was else None, seconds),
        number(reader.dead_lettered - reader.replayed - reader.discarded),
        "paused" if reader.config.paused else "",
    ]


def _rate(count: int, before: int | None, seconds: float) -> str:
    if before is None or seconds <= 0:
        return ""
    # A queue that was deleted and made again counts from the beginning.
    return number(max(0, count - before) / seconds)

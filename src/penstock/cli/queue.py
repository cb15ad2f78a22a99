"""``penstock queue``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.config_options import with_settings
from penstock.cli.confirmation import confirm
from penstock.cli.connection import with_client
from penstock.cli.options import AsJson, Queue, Yes
from penstock.cli.output import (
    add_row,
    moment,
    number,
    print_json,
    print_pairs,
    setting,
    show,
    size,
    table,
    terminal_width,
)
from penstock.core.config import QueueConfig

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.core.stats import QueueStats

__all__ = ["app"]

_PAGE = 1000

# Columns of the terminal below which a column of the list is left out.
_FOR_ROOMY = {"created": 100, "subscriptions": 60, "dead letters": 45}

app = typer.Typer(
    name="queue", help="Create, look at, alter and delete queues.", no_args_is_help=True
)


@app.command("create")
@with_client
@with_settings(QueueConfig, is_new=True)
def create(
    client: Client,
    queue: Queue,
    settings: dict[str, Any],
    if_absent: Annotated[
        bool, typer.Option("--if-absent", help="One with the settings given here may be there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a queue, with its subscription `default`."""
    create = client.ensure_queue if if_absent else client.create_queue
    _show(create(queue, **settings), as_json=as_json)


@app.command("list")
@with_client
def list_queues(client: Client, as_json: AsJson = False) -> None:
    """List queues by name."""
    queues: list[QueueStats] = []
    while page := client.queues(after=queues[-1].name if queues else None, limit=_PAGE):
        queues += page
    if as_json:
        print_json(queues)
        return
    columns: dict[str, Callable[[QueueStats], str]] = {
        "queue": lambda one: one.name,
        "messages": lambda one: number(one.messages),
        "size": lambda one: size(one.bytes),
        "dead letters": lambda one: number(one.dead_letters),
        "subscriptions": lambda one: number(len(one.subscriptions)),
        "created": lambda one: moment(one.created_at),
    }
    for name, least_columns in _FOR_ROOMY.items():
        if terminal_width() < least_columns:
            del columns[name]
    numbers = ("messages", "size", "dead letters", "subscriptions")
    shown = table(*columns, right=numbers, cut=("queue",))
    for one in queues:
        add_row(shown, *(cell(one) for cell in columns.values()))
    show(shown if queues else "There are no queues.")


@app.command("show")
@with_client
def show_one(client: Client, queue: Queue, as_json: AsJson = False) -> None:
    """Look at a queue."""
    _show(client.queue_stats(queue), as_json=as_json)


@app.command("alter")
@with_client
@with_settings(QueueConfig)
def alter(client: Client, queue: Queue, settings: dict[str, Any], as_json: AsJson = False) -> None:
    """Alter settings of a queue; the others stay as they are."""
    _show(client.alter_queue(queue, **settings), as_json=as_json)


@app.command("delete")
@with_client
def delete(client: Client, queue: Queue, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a queue, with its messages, subscriptions and dead letters."""
    confirm(f"Delete {queue} with all its messages?", yes=yes)
    client.delete_queue(queue)
    if as_json:
        print_json({"deleted": queue})
    else:
        typer.echo(f"deleted {queue}")


@app.command("purge")
@with_client
def purge(client: Client, queue: Queue, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove every message, for every subscription; dead letters stay."""
    confirm(f"Remove every message of {queue}?", yes=yes)
    count = client.purge_queue(queue)
    if as_json:
        print_json({"purged": count})
    else:
        typer.echo(f"removed {number(count)} from {queue}")


def _show(stats: QueueStats, *, as_json: bool) -> None:
    if as_json:
        print_json(stats)
        return
    config = msgspec.structs.asdict(stats.config)
    print_pairs(
        [
            ("queue", stats.name),
            ("created", moment(stats.created_at)),
            ("indexes", f"{stats.first_index} to {stats.next_index}, the last one not included"),
            ("messages", number(stats.messages)),
            ("size", size(stats.bytes)),
            ("dead letters", number(stats.dead_letters)),
            ("subscriptions", ", ".join(one.name for one in stats.subscriptions)),
            *((name, setting(value)) for name, value in config.items()),
        ]
    )

"""``penstock dlq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits
from penstock.cli.confirmation import confirm
from penstock.cli.connection import with_client
from penstock.cli.options import AsJson, Limit, Queue, Yes
from penstock.cli.output import (
    add_row,
    moment,
    plain,
    preview,
    print_json,
    print_lines,
    show,
    table,
)

if TYPE_CHECKING:
    from penstock.client import Client, Message

__all__ = ["app"]

app = typer.Typer(
    name="dlq", help="Look at dead letters, replay or discard them.", no_args_is_help=True
)

Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of the messages.", metavar="ID", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@app.command("list")
@with_client
def list_letters(
    client: Client,
    queue: Queue,
    start: Annotated[int, typer.Option(help="The first index among the dead letters.", min=0)] = 0,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List messages that failed for good."""
    letters: list[Message] = []
    while len(letters) < limit and (
        page := client.dead_letters(queue, start, min(1000, limit - len(letters)))
    ):
        letters += page
        start = page[-1].index + 1
    if as_json:
        print_lines(letters)
        return
    shown = table(
        "index",
        "id",
        "subscription",
        "deliveries",
        "failed",
        "reason",
        "body",
        right=("index", "deliveries"),
        cut=("reason", "body"),
    )
    for one in letters:
        letter = one.dead_letter
        if letter is not None:
            add_row(
                shown,
                str(one.index),
                one.id,
                letter.subscription,
                str(letter.deliveries),
                moment(letter.failed_at),
                plain(letter.reason),
                preview(one.body),
            )
    show(shown if letters else f"{queue} has no dead letters.")


@app.command("replay")
@with_client
def replay(
    client: Client, queue: Queue, ids: Ids = None, every: All = False, as_json: AsJson = False
) -> None:
    """Give dead letters back to the subscriptions they failed on."""
    count = client.replay(queue, _chosen(ids, every=every))
    _report("replayed", count, ids, as_json=as_json)


@app.command("discard")
@with_client
def discard(
    client: Client,
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove dead letters for good."""
    chosen = _chosen(ids, every=every)
    if chosen is None:
        confirm(f"Remove every dead letter of {queue}?", yes=yes)
    count = client.discard(queue, chosen)
    _report("discarded", count, ids, as_json=as_json)


def _chosen(ids: list[str] | None, *, every: bool) -> list[str] | None:
    if bool(ids) == every:
        exits.usage("name the ids of messages, or pass --all")
    return ids or None


def _report(what: str, count: int, ids: list[str] | None, *, as_json: bool) -> None:
    """Ends the program with 1 when an id was not that of a dead letter."""
    if as_json:
        print_json({what: count})
    else:
        typer.echo(f"{what} {count}")
    if ids and count < len(set(ids)):
        exits.stop(
            f"message_not_found: {len(set(ids)) - count} of the ids are not those of dead letters",
            exits.REFUSED,
        )

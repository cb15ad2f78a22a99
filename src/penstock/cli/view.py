"""``penstock view`` and ``penstock tail``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits
from penstock.cli.connection import with_client
from penstock.cli.options import AsJson, Limit, Queue
from penstock.cli.output import (
    moment,
    plain,
    preview,
    print_lines,
    print_messages,
    print_pairs,
    size,
    write,
)
from penstock.cli.standard_streams import end_if_unread

if TYPE_CHECKING:
    from penstock.client import Client, Message

__all__ = ["tail", "view"]

_PAGE = 1000
# Between two looks at a quiet queue. They get longer while nothing comes, up to a second.
_SHORTEST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0

Body = Annotated[
    bool, typer.Option("--body", help="Print bodies alone, each with a newline behind it.")
]


@with_client
def view(
    client: Client,
    queue: Queue,
    id: Annotated[
        str | None,
        typer.Option("--id", help="The message of this id; with --body its very bytes."),
    ] = None,
    start: Annotated[int, typer.Option(help="The first index.", min=0)] = 0,
    limit: Limit = 20,
    body: Body = False,
    as_json: AsJson = False,
) -> None:
    """Look at messages without receiving them.

    Nobody's progress is touched.
    """
    if body and as_json:
        exits.usage("use either --body or --json")
    if id is not None:
        message = client.get(queue, id)
        if body:
            write(message.body)
        elif as_json:
            print_lines([message])
        else:
            _print_one(message)
        return
    count = 0
    stop = client.queue_stats(queue).next_index
    while count < limit and start < stop:
        found = client.read(queue, start, min(_PAGE, limit - count))
        if found:
            _show(found, as_json=as_json, body=body)
            count += len(found)
        start = _after(found, start, stop)
    if not count and not as_json and not body:
        typer.echo(f"there is nothing in {queue} from there on")


@with_client
def tail(
    client: Client,
    queue: Queue,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="How many of the newest to begin with.", min=0)
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new ones as they come.")
    ] = False,
    body: Body = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest messages, and follow.

    Nobody's progress is touched. While nothing comes, a follower asks once a second.
    """
    if body and as_json:
        exits.usage("use either --body or --json")
    stats = client.queue_stats(queue)
    at = max(stats.first_index, stats.next_index - limit)
    pause = _SHORTEST_PAUSE_SECONDS
    while follow or at < stats.next_index:
        found = client.read(queue, at, _PAGE)
        if not follow:
            # Leave out what was published after the command had started.
            found = [message for message in found if message.index < stats.next_index]
        if found:
            _show(found, as_json=as_json, body=body)
            pause = _SHORTEST_PAUSE_SECONDS
        if found or at < stats.next_index:
            at = _after(found, at, stats.next_index)
        else:
            end_if_unread()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            begun = stats.created_at
            stats = client.queue_stats(queue)
            if stats.created_at != begun:
                at = stats.first_index  # it was deleted, and is another queue now


def _after(found: Sequence[Message], start: int, stop: int) -> int:
    """Where the next page starts. In a repaired queue, one before ``stop`` may be missing."""
    return found[-1].index + 1 if found else min(start + _PAGE, stop)


def _show(found: Sequence[Message], *, as_json: bool, body: bool) -> None:
    if as_json:
        print_lines(found)
    elif body:
        write(b"".join(one.body + b"\n" for one in found))
    else:
        print_messages(found)


def _print_one(message: Message) -> None:
    pairs = [
        ("queue", message.queue),
        ("index", str(message.index)),
        ("id", message.id),
        ("created", moment(message.created_at)),
        ("content type", plain(message.content_type)),
        ("size", size(len(message.body))),
        ("topic", plain(message.topic or "")),
        ("priority", str(message.priority or "")),
        ("group key", plain(message.group_key or "")),
        ("dedup key", plain(message.dedup_key or "")),
        ("not before", moment(message.not_before)),
        ("expires", moment(message.expires_at)),
        *((f"attribute {plain(name)}", plain(text)) for name, text in message.attributes.items()),
        ("body", preview(message.body)),
    ]
    print_pairs((name, value) for name, value in pairs if value)

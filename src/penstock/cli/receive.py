"""``penstock receive``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits
from penstock.cli.connection import with_client
from penstock.cli.options import DEFAULT_SUBSCRIPTION, AsJson, Limit, Queue, Subscription
from penstock.cli.output import print_lines, print_messages, write
from penstock.cli.standard_streams import end_if_unread

if TYPE_CHECKING:
    from penstock.client import Client, Delivery

__all__ = ["receive"]

_MOST = 1000
_LONGEST_WAIT_SECONDS = 20.0


@with_client
def receive(
    client: Client,
    queue: Queue,
    subscription: Subscription = DEFAULT_SUBSCRIPTION,
    limit: Limit = 1,
    wait: Annotated[
        float, typer.Option("--wait", "-w", help="Seconds to wait for the first one.", min=0)
    ] = 0,
    lease: Annotated[
        float | None,
        typer.Option(help="Seconds until the lease ends; the subscription's, if absent.", min=1),
    ] = None,
    acknowledge: Annotated[
        bool, typer.Option("--ack", help="Ack each once it is printed.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until it is interrupted.")
    ] = False,
    body: Annotated[
        bool, typer.Option("--body", help="Print bodies alone, each with a newline behind it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Receive messages, under a lease.

    Settle them before the lease ends (penstock ack, nack, extend), or they are delivered again.
    Exits with 3 when there is nothing.
    """
    if body and as_json:
        exits.usage("use either --body or --json")
    count = 0
    while follow or count < limit:
        seconds = _LONGEST_WAIT_SECONDS if follow else wait if not count else 0
        found = _receive(
            client, queue, subscription, limit if follow else limit - count, seconds, lease
        )
        if found:
            _show(found, as_json=as_json, body=body)
            if acknowledge:
                client.ack(queue, found, subscription)
        elif not follow:
            break
        else:
            end_if_unread()
        count += len(found)
    if not count:
        exits.stop("nothing was received", exits.NOTHING)


def _receive(
    client: Client,
    queue: str,
    subscription: str,
    limit: int,
    seconds: float,
    lease_seconds: float | None,
) -> list[Delivery]:
    """A server limits how long one request may wait, so a longer wait is several requests."""
    while True:
        found = client.receive(
            queue,
            subscription=subscription,
            limit=min(limit, _MOST),
            wait_seconds=min(seconds, _LONGEST_WAIT_SECONDS),
            lease_seconds=lease_seconds,
        )
        seconds -= _LONGEST_WAIT_SECONDS
        if found or seconds <= 0:
            return found


def _show(found: list[Delivery], *, as_json: bool, body: bool) -> None:
    if as_json:
        print_lines(found)
    elif body:
        write(b"".join(one.body + b"\n" for one in found))
    else:
        print_messages(found, with_receipts=True)

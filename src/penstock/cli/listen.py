"""``penstock listen``."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli import exits
from penstock.cli.callback_receiver import Arrival, Inbox, Receiver
from penstock.cli.connection import Connection, with_connection
from penstock.cli.options import AsJson
from penstock.cli.output import plain, preview, print_json, write
from penstock.cli.times import start_of

if TYPE_CHECKING:
    from penstock.client import AsyncClient

__all__ = ["listen"]

_INTERRUPTED = 130
_BODY_CHARACTERS = 500


@with_connection
def listen(
    connection: Connection,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            "-q",
            help="Have the messages of this queue called back here, for as long as this runs.",
        ),
    ] = None,
    sub: Annotated[
        str | None,
        typer.Option("--sub", help="The subscription's name; one that is not taken, if absent."),
    ] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", help="Only messages of which this CEL is true.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="earliest, latest, an index, or a time with its zone.", metavar="START"),
    ] = "latest",
    notify: Annotated[
        bool, typer.Option("--notify", help="Be told that there is something, not what.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 is any.", min=0, max=65535)] = 0,
    callback_url: Annotated[
        str | None,
        typer.Option(help="What the server is to call, if it reaches this another way."),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            help="Verify signatures with it; may be repeated. With --queue it is known.",
            envvar="PENSTOCK_WEBHOOK_SECRET",
            metavar="whsec_...",
        ),
    ] = None,
    status: Annotated[
        int, typer.Option(help="What to answer, to see what becomes of it.", min=200, max=599)
    ] = 200,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="End after so many calls.", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Receive callbacks and print them.

    It verifies their signatures, and answers 401 to a call whose signature is wrong. With --queue
    it makes a subscription with a callback to itself, and deletes it at the end.
    """
    if queue is None and (sub or filter or notify or callback_url or start != "latest"):
        exits.usage("--sub, --filter, --start, --notify and --callback-url go with --queue")
    receiver = Receiver(secret or [], status=status)
    wish = _Wish(
        queue=queue,
        name=sub or f"listen-{secrets.token_hex(4)}",
        start=start_of(start),
        filter=filter,
        mode="notify" if notify else "deliver",
        url=callback_url,
    )
    printer = _Printer(limit, as_json=as_json)
    if asyncio.run(_listen(connection, receiver, wish, printer, host, port)):
        raise typer.Exit(_INTERRUPTED)


class _Wish(NamedTuple):
    """The subscription that is wanted; none without a queue."""

    queue: str | None
    name: str
    start: str | int | datetime
    filter: str | None
    mode: str
    url: str | None

    @asynccontextmanager
    async def granted(self, connection: Connection, url: str) -> AsyncIterator[list[str]]:
        """Create it for as long as the block runs. Yields its secret, if it has one."""
        if self.queue is None:
            yield []
            return
        async with _client(connection) as client:
            made = await client.create_subscription(
                self.queue,
                self.name,
                start=self.start,
                filter=self.filter,
                callback={"url": self.url or url, "mode": self.mode},
            )
            try:
                yield [made.secret] if made.secret else []
            finally:
                await client.delete_subscription(self.queue, self.name)


async def _listen(
    connection: Connection,
    receiver: Receiver,
    wish: _Wish,
    printer: _Printer,
    host: str,
    port: int,
) -> bool:
    """Print calls until there were enough. True if it was interrupted before that."""
    async with (
        _until_stopped() as stopped,
        receiver.listening(host, port) as (url, inbox),
        wish.granted(connection, url) as known,
    ):
        receiver.open(*known)
        whose = f" to {wish.name} of {wish.queue}" if wish.queue else ""
        typer.echo(f"listening on {url}{whose}", err=True)
        return await printer.run(inbox, stopped)


def _client(connection: Connection) -> AsyncClient:
    from penstock.client import AsyncClient

    return AsyncClient(connection.url, **connection.options())


@asynccontextmanager
async def _until_stopped() -> AsyncIterator[asyncio.Event]:
    """An event that signals set, so that the subscription can be deleted in the end."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Whoever started this may ignore one of them, as nohup does.
    numbers = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class _Printer:
    def __init__(self, limit: int | None, *, as_json: bool) -> None:
        self._left = limit
        self._as_json = as_json

    async def run(self, inbox: Inbox, stopped: asyncio.Event) -> bool:
        """Print what comes in. True when it was stopped before there was enough."""
        stopping = asyncio.create_task(stopped.wait())
        try:
            while self._left is None or self._left > 0:
                coming = asyncio.create_task(inbox.get())
                await asyncio.wait([stopping, coming], return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    return True
                arrival, printed = coming.result()
                self._print(arrival)
                printed.set_result(None)
                if self._left is not None:
                    self._left -= 1
            return False
        finally:
            stopping.cancel()

    def _print(self, arrival: Arrival) -> None:
        if self._as_json:
            print_json(arrival)
        else:
            write(_line(arrival).encode())


def _line(arrival: Arrival) -> str:
    when: datetime = arrival.received_at
    about = [f"{when:%H:%M:%S}", arrival.verdict, plain(arrival.id or "(no id)")]
    if arrival.queue is not None and arrival.index is not None:
        about.append(plain(f"{arrival.queue}[{arrival.index}]"))
    if arrival.deliveries is not None and arrival.deliveries > 1:
        about.append(f"delivery {arrival.deliveries}")
    if arrival.topic is not None:
        about.append(plain(f"topic {arrival.topic}"))
    if arrival.problem is not None:
        about.append(plain(f"({arrival.problem})"))
    return f"{'  '.join(about)}  {preview(arrival.content, _BODY_CHARACTERS)}\n"

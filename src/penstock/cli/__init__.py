"""The command line: ``penstock``. One file for each group of commands."""

from __future__ import annotations

from typing import ClassVar

import typer

import penstock
from penstock.cli.lazy import Entry, LazyGroup
from penstock.cli.standard_streams import prepare_streams

__all__ = ["app", "main"]

_MESSAGES = "Messages"
_THINGS = "Queues and subscriptions"
_SERVER = "The server"
_DATA = "Data"
_SHELL = "This program"


class _Commands(LazyGroup):
    entries: ClassVar[dict[str, Entry]] = {
        "publish": Entry("publish", "publish", "Publish messages to a queue.", _MESSAGES),
        "receive": Entry("receive", "receive", "Receive messages, under a lease.", _MESSAGES),
        "ack": Entry("settle", "ack", "Say that deliveries are done with.", _MESSAGES),
        "nack": Entry(
            "settle", "nack", "Return deliveries that failed, to be delivered again.", _MESSAGES
        ),
        "extend": Entry("settle", "extend", "Extend the leases of deliveries.", _MESSAGES),
        "view": Entry("view", "view", "Look at messages without receiving them.", _MESSAGES),
        "tail": Entry("view", "tail", "Show the newest messages, and follow.", _MESSAGES),
        "listen": Entry("listen", "listen", "Receive callbacks and print them.", _MESSAGES),
        "queue": Entry("queue", "app", "Create, look at, alter and delete queues.", _THINGS),
        "sub": Entry("sub", "app", "Create, look at, alter and move subscriptions.", _THINGS),
        "dlq": Entry("dlq", "app", "Look at dead letters, replay or discard them.", _THINGS),
        "stats": Entry("stats", "stats", "Watch queues and subscriptions.", _THINGS),
        "serve": Entry("serve", "serve", "Start the server.", _SERVER),
        "user": Entry("user", "app", "Add, list, change and remove users.", _SERVER),
        "token": Entry("token", "token", "Print a token for a name and a password.", _SERVER),
        "doctor": Entry("doctor", "doctor", "Check a server and this machine.", _SERVER),
        "bench": Entry("bench", "bench", "Put a short load on a running server.", _SERVER),
        "ingest": Entry("ingest", "app", "Handle ingested messages.", _DATA),
        "pipeline": Entry("pipeline", "app", "Land messages in a lake with Spark.", _DATA),
        "recover": Entry(
            "recover",
            "recover",
            "Rebuild what a Redis has lost from its archive in MongoDB.",
            _SERVER,
        ),
        "wal": Entry("wal", "app", "Look at, check and repair a data directory.", _SERVER),
        "completion": Entry("completion", "completion", "Print shell completion.", _SHELL),
    }


app = typer.Typer(
    name="penstock",
    cls=_Commands,
    help="Penstock, a durable message queue.",
    epilog=(
        "Exit codes: 0 all is well, 1 the answer is no, 2 wrong usage, 3 nothing was received, "
        "4 the server cannot be reached, 5 the data directory cannot be used, 6 not allowed."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    pass


def main() -> None:
    """The entry point of the ``penstock`` command."""
    prepare_streams()
    app()

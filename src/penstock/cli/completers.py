"""Completers: names that a shell completes by asking the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from penstock.cli.connection import Connection
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client

__all__ = ["complete_queue", "complete_subscription"]

# Somebody who presses a key does not wait longer.
_PATIENCE_SECONDS = 1.0


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    return _ask(ctx, lambda client: [one.name for one in client.stats()], incomplete)


def complete_subscription(ctx: typer.Context, incomplete: str) -> list[str]:
    """The subscriptions of the queue that is named before it."""
    queue = ctx.params.get("queue")
    if not queue:
        return []
    return _ask(ctx, lambda client: [one.name for one in client.subscriptions(queue)], incomplete)


def _ask(ctx: typer.Context, names: Callable[[Client], list[str]], incomplete: str) -> list[str]:
    """Nothing if there is no answer: this is no place for errors or questions."""
    given = {name: ctx.params[name] for name in Connection._fields if ctx.params.get(name)}
    connection = Connection(**given)._replace(timeout=_PATIENCE_SECONDS, retries=0)
    if connection.user and not connection.password and not connection.token:
        return []
    from penstock.client import Client

    try:
        with Client(connection.url, **connection.options()) as client:
            return [name for name in names(client) if name.startswith(incomplete)]
    except (PenstockError, typer.Exit):
        return []

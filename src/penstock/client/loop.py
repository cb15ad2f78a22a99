"""The event loop that a client belongs to."""

from __future__ import annotations

import asyncio

from penstock.client.errors import ClientClosed

__all__ = ["belongs_elsewhere"]


def belongs_elsewhere(loop: asyncio.AbstractEventLoop) -> ClientClosed:
    """For a call in another event loop than its client's, perhaps that of a forked child."""
    if loop.is_closed():
        return ClientClosed("the event loop of the client has ended: make a new client")
    return ClientClosed("the client belongs to another event loop or process: make a new one")

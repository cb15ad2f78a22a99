"""Waiting on behalf of a client only as long as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from blacksheep import Request

__all__ = ["while_present"]

Result = TypeVar("Result")


async def while_present(
    request: Request, work: Coroutine[Any, Any, Result], otherwise: Result
) -> Result:
    """The result of ``work``, or ``otherwise`` when the client has closed its connection.

    So nobody who has gone keeps a place in a line, or is handed a message. The request's body must
    have been read before.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    watch = loop.create_task(_cancel_when_gone(request, task))
    try:
        await asyncio.wait([task])
    finally:
        watch.cancel()
        # A handler that is cancelled takes its work with it.
        task.cancel()
    return otherwise if task.cancelled() else task.result()


async def _cancel_when_gone(request: Request, task: asyncio.Task[Any]) -> None:
    receive = getattr(request.content, "receive", None)
    if receive is None:
        return
    event = await cast(Callable[[], Awaitable[dict[str, Any]]], receive)()
    if event["type"] == "http.disconnect":
        task.cancel()

"""Waiting on behalf of a client, but only while it is still connected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.http.exchange import IncomingRequest

__all__ = ["Presence", "while_present"]

Result = TypeVar("Result")


async def while_present(
    request: IncomingRequest,
    work: Coroutine[Any, Any, Result],
    otherwise: Result,
    undo: Callable[[Result], Awaitable[object]],
) -> Result:
    """The result of ``work``, or ``otherwise`` when the client has closed its connection.

    So a client that has left is not given messages: what ``work`` returned all the same is passed
    to ``undo``. The request's body must have been read before.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    watch = loop.create_task(_cancel_when_gone(request, task))
    try:
        await asyncio.wait([task])
    finally:
        watch.cancel()
        # If this handler is cancelled, so is its work.
        task.cancel()
    if task.cancelled():
        return otherwise
    if watch.done() and not watch.cancelled() and watch.result():
        await undo(task.result())
        return otherwise
    return task.result()


async def _cancel_when_gone(request: IncomingRequest, task: asyncio.Task[Any]) -> bool:
    await request.exchange.hung_up()
    task.cancel()
    return True


class Presence:
    """Whether the client of a request is still connected, for work of many steps."""

    def __init__(self, request: IncomingRequest) -> None:
        self._request = request
        self._watch: asyncio.Task[None] | None = None
        self.is_there = True

    def __enter__(self) -> Self:
        self._watch = asyncio.get_running_loop().create_task(self._look())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()

    async def _look(self) -> None:
        await self._request.exchange.left()
        self.is_there = False

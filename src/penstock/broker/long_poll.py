"""Long polls: receives that wait for a message, until their time is up or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.core.message import Delivery
from penstock.storage.base import Store

__all__ = ["LongPolls"]


class LongPolls:
    """The receives that are waiting. `stop` ends them all, as if their time were up."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: set[asyncio.Task[Any]] = set()
        self._may_wait = True

    def stop(self) -> None:
        """End those that wait, with nothing. Later ones do not wait."""
        self._may_wait = False
        for task in self._waiting:
            task.cancel()

    async def receive(
        self,
        receive: Callable[[], Awaitable[list[Delivery]]],
        queue: str,
        subscription: str,
        seconds: float,
    ) -> list[Delivery]:
        """Call ``receive`` whenever there is news, until it gives something or the time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._may_wait and (left := until - loop.time()) > 0:
            if await self._news(queue, subscription, left) and (deliveries := await receive()):
                return deliveries
        return []

    async def _news(self, queue: str, subscription: str, seconds: float) -> bool:
        """Wait for news. False when the time was up first, or nobody may wait any more."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await self._store.wait(queue, subscription, seconds) is not None
        except asyncio.CancelledError:
            if self._may_wait or task.uncancel() > 0:
                raise  # it is the caller that was cancelled
            return False
        finally:
            self._waiting.discard(task)

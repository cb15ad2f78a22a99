"""A lock for each queue, for those who copy it to the record, delete it or rebuild it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.storage.archiving import HotStore

__all__ = ["QueueLocks"]

_SECONDS = 30.0
_RETRY_SECONDS = 0.05


class QueueLocks:
    """The hot store has the locks, so they hold for all servers. A dead server's run out."""

    def __init__(self, hot: HotStore) -> None:
        self._hot = hot
        # The hot store keeps out other servers, but not this one.
        self._own: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def held(self, queue: str) -> AsyncIterator[None]:
        async with self._own.setdefault(queue, asyncio.Lock()):
            while not await self.renew(queue):  # noqa: ASYNC110
                # Another server has the lock, and cannot tell us when it is done.
                await asyncio.sleep(_RETRY_SECONDS)
            try:
                yield
            finally:
                await self._hot.unlock(_name(queue))

    async def renew(self, queue: str) -> bool:
        """Whether a lock that was held is still held, and is from now on for as long as before."""
        return await self._hot.lock(_name(queue), _SECONDS)


def _name(queue: str) -> str:
    return f"copy:{queue}"

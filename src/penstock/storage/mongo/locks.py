"""Locks for work that one server must do alone: copying, deleting or rebuilding a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.errors import StoreUnavailable
from penstock.storage.archiving import HotStore

__all__ = ["Locks"]

_SECONDS = 30.0
_RETRY_SECONDS = 0.05


class Locks:
    """The hot store has the locks, so they hold for all servers. A dead server's run out.

    A call that was given up, or cancelled, may still take a lock. So whoever wanted one releases it
    in any case; if that fails, too, `release_left` does it later.
    """

    def __init__(self, hot: HotStore) -> None:
        self._hot = hot
        # The hot store keeps out other servers, but not this one.
        self._own: dict[str, asyncio.Lock] = {}
        self._left: set[str] = set()  # perhaps taken, and used by nobody

    @asynccontextmanager
    async def held(self, queue: str) -> AsyncIterator[None]:
        """Hold the lock of a queue."""
        async with self.released(_name(queue)):
            while not await self._hot.lock(_name(queue), _SECONDS):  # noqa: ASYNC110
                # Another server has the lock, and cannot tell us when it is done.
                await asyncio.sleep(_RETRY_SECONDS)
            yield

    async def renew(self, queue: str) -> bool:
        """Hold the lock for as long as from the beginning. False if it was lost meanwhile."""
        return await self._hot.renew(_name(queue), _SECONDS)

    @asynccontextmanager
    async def released(self, name: str) -> AsyncIterator[None]:
        """Keep others of this server out, and release a lock at the end, if it was taken."""
        async with self._own.setdefault(name, asyncio.Lock()):
            try:
                yield
            finally:
                self._left.add(name)
                with suppress(StoreUnavailable):  # then it is left
                    await self._release(name)

    async def release_left(self) -> None:
        """Release what could not be released before. Nobody of this server is waited for."""
        for name in sorted(self._left):
            own = self._own[name]
            if not own.locked():
                async with own:
                    await self._release(name)

    async def _release(self, name: str) -> None:
        await self._hot.unlock(name)
        self._left.discard(name)


def _name(queue: str) -> str:
    return f"copy:{queue}"

"""Locks for work that one server must do alone: copying, deleting or rebuilding a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.errors import PenstockError, StoreUnavailable
from penstock.storage.archiving import HotStore

__all__ = ["Locks"]

SECONDS = 10.0
"""How long the lock of a server that died is still held."""
RENEW_SECONDS = 2.0
_RETRY_SECONDS = 0.05


class Locks:
    """The hot store has the locks, so they hold for all servers. A dead server's run out.

    A server that stands still loses its locks, too: see `renew`.

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
        name = _name(queue)
        async with self.keeping(name):
            while not await self.take(name):  # noqa: ASYNC110
                # Another server has the lock, and cannot tell us when it is done.
                await asyncio.sleep(_RETRY_SECONDS)
            yield

    async def take(self, name: str) -> bool:
        """Take a lock, while it is kept. False if another server has it."""
        return await self._hot.lock(name, SECONDS)

    async def renew(self, queue: str) -> bool:
        """Whether the lock of a queue was held all the time, so that no other server had it."""
        return await self._hot.renew(_name(queue), SECONDS)

    @asynccontextmanager
    async def keeping(self, name: str) -> AsyncIterator[None]:
        """Renew a lock meanwhile, and release it at the end, if it is taken.

        Others of this server are kept out.
        """
        async with self._own.setdefault(name, asyncio.Lock()):
            renewing = asyncio.get_running_loop().create_task(self._renew_regularly(name))
            try:
                yield
            finally:
                self._left.add(name)
                renewing.cancel()
                with suppress(StoreUnavailable):  # then it is left
                    await self._release(name)

    async def _renew_regularly(self, name: str) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(PenstockError):  # whoever relies on the lock asks for it
                await self._hot.renew(name, SECONDS)

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

"""Whether the hot store has all that the record has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from penstock.errors import QueueNotFound
from penstock.storage.archiving import HotStore, Recovered
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.mirror import Mirror
from penstock.storage.mongo.recovery import recover

__all__ = ["Wholeness"]

T = TypeVar("T")

_NONE: Mapping[str, int] = MappingProxyType({})


class Wholeness:
    """Where it has not, it is rebuilt before anybody is answered that something is not there."""

    def __init__(self, hot: HotStore, archive: Archive, mirror: Mirror, identity: str) -> None:
        self._hot = hot
        self._archive = archive
        self._mirror = mirror
        self._identity = identity
        self._recovering = asyncio.Lock()

    async def recover(self, suspects: Mapping[str, int] = _NONE) -> Recovered:
        """Rebuild what the hot store has lost, and archive what it has that the record has not.

        ``suspects`` are messages, by queue, that may be lost although newer ones are not. Once for
        all who ask while it is done: the lock keeps out other servers, not this one.
        """
        is_first = not self._recovering.locked()
        async with self._recovering:
            if not is_first and await self._hot.is_complete(self._identity):
                return Recovered(restored={}, archived={})
            recovered = await recover(self._hot, self._archive, self._identity, suspects)
            if recovered.restored or recovered.archived:
                await self._mirror.copy_all()
            return recovered

    async def check(self) -> None:
        """A queue that waits to be rebuilt must not be made anew."""
        if not await self._hot.is_complete(self._identity):
            await self.recover()

    async def ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A queue that is not there may be one that the hot store has lost."""
        try:
            return await ask()
        except QueueNotFound:
            if await self._hot.is_complete(self._identity):
                raise
            await self.recover()
            return await ask()

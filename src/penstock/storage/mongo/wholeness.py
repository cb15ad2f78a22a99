"""Whether the hot store has all that the record has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import TypeVar

from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage.archiving import HotStore, Recovered
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.mirror import Mirror, source_of
from penstock.storage.mongo.recovery import recover

__all__ = ["Wholeness"]

T = TypeVar("T")

_AGAIN_SECONDS = 1.0
_NONE: Mapping[str, int] = MappingProxyType({})


class Wholeness:
    """Where it has not, it is rebuilt before anybody is answered that something is not there.

    What could not be looked at, because a node of the hot store is away, is looked at again until
    it could.
    """

    def __init__(self, hot: HotStore, archive: Archive, mirror: Mirror, identity: str) -> None:
        self._hot = hot
        self._archive = archive
        self._mirror = mirror
        self._identity = identity
        self._recovering = asyncio.Lock()
        # What is still to be looked at, with why; None before the first look.
        self._missing: Mapping[str, str] | None = None
        self._looked_at = -inf

    @property
    def problem(self) -> str | None:
        """Why something of the record could not be looked for yet."""
        if self._missing is None:
            return "nothing was looked for yet"
        return next((f"{what}: {why}" for what, why in self._missing.items()), None)

    async def recover(self, suspects: Mapping[str, int] = _NONE) -> Recovered:
        """Rebuild what the hot store has lost, and archive what it has that the record has not.

        ``suspects`` are messages, by queue, that may be lost although newer ones are not. Once for
        all who ask while it is done: the lock keeps out other servers, not this one. Raises
        `StoreUnavailable` if a suspect could not be looked at, or nothing could.
        """
        is_first = not self._recovering.locked()
        async with self._recovering:
            if not is_first and not await self._is_due():
                return Recovered(restored={}, archived={})
            self._looked_at = asyncio.get_running_loop().time()
            recovered, self._missing = await recover(
                self._hot, self._archive, self._identity, suspects
            )
            if recovered.restored or recovered.archived:
                await self._mirror.copy_all()
            for queue in suspects:
                self._check_not_missing(queue)
            return recovered

    async def check(self, queue: str = "") -> None:
        """A queue that waits to be rebuilt must not be made anew: raises `StoreUnavailable`."""
        if await self._is_due():
            await self.recover()
        self._check_not_missing(queue)

    async def ask(self, queue: str, ask: Callable[[], Awaitable[T]]) -> T:
        """A queue that is not there may be one that the hot store has lost."""
        try:
            return await ask()
        except QueueNotFound:
            if not await self._is_due():
                self._check_not_missing(queue)
                raise
            await self.recover()
            self._check_not_missing(queue)
            return await ask()

    async def _is_due(self) -> bool:
        """Not too often while a node is away: each time all of the record is looked for."""
        is_partial = self._missing is None or bool(self._missing)
        if is_partial and asyncio.get_running_loop().time() < self._looked_at + _AGAIN_SECONDS:
            return False
        return is_partial or not await self._hot.is_complete(self._identity)

    def _check_not_missing(self, queue: str) -> None:
        if self._missing is None:
            raise StoreUnavailable("what Redis has lost was not looked for yet: try again shortly")
        if (source := source_of(queue)) in self._missing:
            why = self._missing[source]
            raise StoreUnavailable(f"queue {source!r} may have to be rebuilt: {why}")

"""Whether the hot store has everything that the record has, and rebuilding it if not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import TypeVar

from penstock.core.definitions import queue_exists
from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage.archiving import HotStore, Recovered
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.locks import Locks
from penstock.storage.mongo.mirror import Mirror, is_recorded, source_of
from penstock.storage.mongo.recovery import recover

__all__ = ["Completeness"]

T = TypeVar("T")

_RETRY_SECONDS = 1.0
_ATTEMPTS = 5
_NO_SUSPECTS: Mapping[str, int] = MappingProxyType({})


class Completeness:
    """Rebuilds what is lost before any caller is told that something does not exist.

    What cannot be checked because a node of the hot store is away is checked again until it can.
    """

    def __init__(
        self,
        hot: HotStore,
        archive: Archive,
        locks: Locks,
        mirror: Mirror,
        identity: str,
    ) -> None:
        self._hot = hot
        self._archive = archive
        self._locks = locks
        self._mirror = mirror
        self._identity = identity
        self._recovering = asyncio.Lock()
        # Queues that could not be checked, with the reason; None before the first recovery.
        self._unchecked: Mapping[str, str] | None = None
        self._recovered_at = -inf

    @property
    def problem(self) -> str | None:
        """Why something in the record could not be checked yet."""
        if self._unchecked is None:
            return "nothing was looked for yet"
        return next((f"{what}: {why}" for what, why in self._unchecked.items()), None)

    async def recover(self, suspects: Mapping[str, int] = _NO_SUSPECTS) -> Recovered:
        """Rebuild what the hot store has lost, and archive what it has that the record has not.

        ``suspects`` has an index per queue that may be lost although newer ones are not. Concurrent
        calls share one run: the lock in the hot store keeps out other servers, but not this one.
        Raises `StoreUnavailable` if a suspect could not be checked, or nothing could.
        """
        is_first = not self._recovering.locked()
        async with self._recovering:
            if not is_first and not await self._is_due():
                return Recovered(restored={}, archived={})
            self._recovered_at = asyncio.get_running_loop().time()
            recovered, self._unchecked = await recover(
                self._hot,
                self._archive,
                self._locks,
                self._identity,
                suspects,
                # Another server does not know our suspects, and may have passed their queues.
                trusts_mark=self._unchecked == {} and not suspects,
            )
            if recovered.restored or recovered.archived:
                await self._mirror.copy_all()
            for queue in suspects:
                self._refuse_if_unchecked(queue)
            return recovered

    async def check(self, queue: str = "") -> None:
        """Raises `StoreUnavailable` if a queue may have to be rebuilt, and must not be created."""
        if await self._is_due():
            await self.recover()
        self._refuse_if_unchecked(queue)

    async def call(self, queue: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation on a queue. If that is not found, rebuild what was lost, and retry.

        A queue in the record is not missing: another server is rebuilding it, or just did.
        """
        for _ in range(_ATTEMPTS):
            try:
                return await operation()
            except QueueNotFound:
                is_away = self._archive.problem is not None
                if not await self._is_due() and (is_away or not await self.is_in_record(queue)):
                    self._refuse_if_unchecked(queue)
                    raise
                await self.recover()
                self._refuse_if_unchecked(queue)
        raise StoreUnavailable(f"queue {queue!r} is being rebuilt: try again shortly")

    async def find(self, queue: str) -> None:
        """Rebuild a queue if it is lost. Raises `QueueNotFound`."""

        async def look() -> None:
            if await self._hot.version(queue) is None:
                raise QueueNotFound(f"there is no queue {queue!r}: create it first")

        await self.call(queue, look)

    async def check_new(self, queue: str) -> None:
        """Raises `QueueExists` if the record has the queue, even if it is lost or being rebuilt."""
        if await self.is_in_record(queue):
            raise queue_exists(queue)

    async def is_in_record(self, queue: str) -> bool:
        """Whether it exists, even if the hot store does not have it."""
        source = source_of(queue)
        if not is_recorded(source):
            return False
        at, is_being_deleted = await self._archive.saved_at(source)
        if at is None or is_being_deleted:
            return False
        if queue == source:
            return True
        state = await self._archive.state(source)
        return state is not None and state.letters is not None

    async def _is_due(self) -> bool:
        """Whether to recover. Not too often while a node is away: it checks the whole record."""
        is_partial = self._unchecked is None or bool(self._unchecked)
        if is_partial and asyncio.get_running_loop().time() < self._recovered_at + _RETRY_SECONDS:
            return False
        return is_partial or not await self._hot.is_complete(self._identity)

    def _refuse_if_unchecked(self, queue: str) -> None:
        """Raises `StoreUnavailable` if it is not known whether the queue has to be rebuilt."""
        if self._unchecked is None:
            raise StoreUnavailable("what Redis has lost was not looked for yet: try again shortly")
        if (source := source_of(queue)) in self._unchecked:
            why = self._unchecked[source]
            raise StoreUnavailable(f"queue {source!r} may have to be rebuilt: {why}")

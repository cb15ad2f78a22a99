"""Changes of definitions. Each is answered once it is in the record.

The hot store makes a change, and then the record gets a copy. A hot store that is wiped in between
has no change to copy, or was rebuilt without it. That is noticed, and the change is not answered.
"""

from __future__ import annotations

import asyncio

from penstock.core import definitions
from penstock.core.limits import EVENTS_SUFFIX
from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage import base
from penstock.storage.archiving import HotStore
from penstock.storage.mongo.archive import Archive, IndexTaken
from penstock.storage.mongo.completeness import Completeness
from penstock.storage.mongo.locks import Locks
from penstock.storage.mongo.mirror import Mirror, is_recorded, source_of

__all__ = ["Defining"]


class Defining:
    """One server makes its changes in the order of the calls."""

    def __init__(
        self,
        hot: HotStore,
        archive: Archive,
        locks: Locks,
        mirror: Mirror,
        completeness: Completeness,
    ) -> None:
        self._hot = hot
        self._archive = archive
        self._locks = locks
        self._mirror = mirror
        self._completeness = completeness
        self._turn = asyncio.Lock()

    async def apply(self, change: base.Change) -> None:
        """Raises `StoreUnavailable` also for a change that may be lost again: repeat it."""
        if isinstance(change, base.DeleteQueue) and is_recorded(change.queue):
            await self._delete(change)
            return
        if isinstance(change, base.CreateQueue):
            definitions.check_queue(change.queue, change.config, change.default)
            if is_recorded(change.queue):
                await self._archive.check_no_foreign_documents(change.queue)
        async with self._turn:
            await self._completeness.check(change.queue)
            if isinstance(change, base.CreateQueue):
                await self._completeness.check_new(change.queue)
                await self._mirror.finish_deleting(change.queue)
            if _asks_for_events(change) and is_recorded(change.queue + EVENTS_SUFFIX):
                making = asyncio.ensure_future(self._make_with_events(change))
                await asyncio.wait([making])
            else:
                known = [await self._hot.rebuilt(source_of(change.queue))]
                making = asyncio.ensure_future(self._make(change, known))
                # Let it queue for the hot store's own lock, so that changes keep their order.
                await asyncio.sleep(0)
        await self._record(change.queue, await making)
        if _asks_for_events(change):
            await self._mirror.copy(change.queue + EVENTS_SUFFIX)

    async def purge(self, queue: str) -> int:
        """Remove all messages, from the record as well. Returns their number."""

        async def purge() -> tuple[str | None, int]:
            before = await self._hot.rebuilt(source_of(queue))
            return before, await self._hot.operate(queue, base.Purge())

        before, count = await self._completeness.call(queue, purge)
        await self._record(queue, before)
        await self._mirror.purge(queue)
        return count

    async def _delete(self, change: base.DeleteQueue) -> None:
        async with self._turn:
            await self._completeness.check(change.queue)
            await self._completeness.find(change.queue)
            gone = asyncio.Event()
            deleting = asyncio.ensure_future(self._mirror.delete(change, gone))
            await gone.wait()
        await deleting

    async def _make(self, change: base.Change, known: list[str | None]) -> str | None:
        """Make a change in the hot store. Returns its `rebuilt` from just before.

        ``known`` has that for the first attempt.
        """

        async def make() -> str | None:
            before = known.pop() if known else await self._hot.rebuilt(source_of(change.queue))
            await self._hot.define(change)
            return before

        return await self._completeness.call(change.queue, make)

    async def _make_with_events(self, change: base.Change) -> str | None:
        """Make a change that makes an events queue, too, unless it exists.

        It exists as well if it is lost, or is just being rebuilt, for which the lock is needed.
        """
        events = change.queue + EVENTS_SUFFIX

        async def make() -> str | None:
            async with self._locks.held(events):
                is_missing = await self._hot.version(events) is None
                if is_missing and await self._completeness.is_in_record(events):
                    raise QueueNotFound(f"there is no queue {events!r}")
                before = await self._hot.rebuilt(change.queue)
                await self._hot.define(change)
                return before

        is_new = isinstance(change, base.CreateQueue)
        return await self._completeness.call(events if is_new else change.queue, make)

    async def _record(self, queue: str, before: str | None) -> None:
        """Copy a queue that was changed. ``before`` is its `rebuilt` from before the change.

        If that is the same when the copy is in the record, the change is in the copy. Raises
        `QueueNotFound` if the queue was deleted before that.
        """
        source = source_of(queue)
        self._mirror.mark_changed(queue)
        try:
            await self._mirror.copy(source)
        except IndexTaken as exc:
            await self._completeness.recover()
            raise StoreUnavailable("Redis had old data, and was rebuilt: try again") from exc
        now = await self._hot.rebuilt(source)
        is_gone = before is not None and now is None
        if is_gone and not await self._completeness.is_in_record(source):
            raise QueueNotFound(f"there is no queue {queue!r}: it was deleted in the meantime")
        if now != (before or ""):
            raise StoreUnavailable(
                f"queue {queue!r} was rebuilt, or deleted, before this change was recorded: look "
                "whether it was made, or try again"
            )


def _asks_for_events(change: base.Change) -> bool:
    match change:
        case base.CreateQueue():
            return change.config.events
        case base.AlterQueue():
            return bool(change.changes.get("events"))
    return False

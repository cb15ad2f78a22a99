"""A hot store with a durable record behind it.

Guarantees:

1. A publish is answered ``replicated`` only after a majority of MongoDB has journaled all of its
   messages. With ``async`` it is answered before, with the durability of the hot store.
2. While MongoDB is known to be away, a publish is refused before the hot store has it.
3. Whatever was answered ``replicated`` and is not settled is restored if the hot store loses
   everything, with its index, its id and its delivery count. What reaches the record after a
   rebuild is restored before it is answered.
4. What was settled stays settled, unless the record is still behind on it: see `mirror`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import SystemRandom

from msgspec.structs import replace

from penstock.core.callback import CallbackTarget
from penstock.core.config import DEFAULT_SUBSCRIPTION
from penstock.core.graph import HeldMessage
from penstock.core.message import Delivery, Message, ViewedMessage
from penstock.core.publishing import NewBatch, PublishResult
from penstock.core.settling import Outcome
from penstock.core.stats import KnownStats, QueueStats
from penstock.errors import PenstockError, StorageError, StoreUnavailable
from penstock.storage import base
from penstock.storage.archiving import HotStore, Recovered
from penstock.storage.block import Chunk
from penstock.storage.mongo.archive import Archive, IndexTaken
from penstock.storage.mongo.completeness import Completeness
from penstock.storage.mongo.connection import Connection
from penstock.storage.mongo.defining import Defining
from penstock.storage.mongo.documents import to_message
from penstock.storage.mongo.locks import Locks
from penstock.storage.mongo.mirror import (
    MARK_SECONDS,
    PASS_SECONDS,
    SWEEP_SECONDS,
    Mirror,
)
from penstock.storage.mongo.publishing import ArchiveMode, Publishing
from penstock.storage.mongo.shared import ArchivedShared
from penstock.storage.mongo.writer import Writer

__all__ = ["ArchiveMode", "ArchivedStore"]

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10.0


class ArchivedStore:
    """Delegates the contract to the hot store, and keeps the record."""

    def __init__(
        self, hot: HotStore, archive: Archive, identity: str, mode: ArchiveMode = "sync"
    ) -> None:
        self._hot = hot
        self._archive = archive
        self._mode = mode
        self._writer = Writer(archive, hot.version)
        self._locks = Locks(hot)
        self._mirror = Mirror(hot, archive, self._locks)
        self._completeness = Completeness(hot, archive, self._locks, self._mirror, identity)
        self._defining = Defining(hot, archive, self._locks, self._mirror, self._completeness)
        self._publishing = Publishing(hot, archive, self._writer, self._completeness, mode)
        self._shared = ArchivedShared(hot.shared, archive.connection)
        self.recovered = Recovered(restored={}, archived={})
        self._ticker: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, hot: HotStore, url: str, mode: ArchiveMode = "sync") -> ArchivedStore:
        """Rebuild the hot store first if it has lost anything: `recovered` says what.

        What cannot be checked because a node of a cluster is away is rebuilt, if need be, when the
        node is back: see `behind`. Raises `StoreUnavailable` if there is no MongoDB at that
        address. The hot store is closed with this one, or if this cannot be opened.
        """
        archive = None
        try:
            archive = Archive(Connection(url))
            identity = await archive.identity(f"{SystemRandom().getrandbits(128):032x}")
            store = cls(hot, archive, identity, mode)
            try:
                store.recovered = await store.recover()
            except StoreUnavailable as exc:
                if store.problem is not None:
                    raise
                # A node of a cluster is away; the regular work does it once the node is back.
                logger.warning("what Redis has lost is looked for later: %s", exc)
        except BaseException:
            if archive is not None:
                await archive.close()
            await hot.close()
            raise
        return store

    @property
    def behind(self) -> str | None:
        """Why it is not known yet whether the hot store has everything in the record."""
        return self._completeness.problem

    async def recover(self) -> Recovered:
        """Rebuild what the hot store has lost, and archive what it has that the record has not."""
        return await self._completeness.recover()

    @property
    def durability(self) -> base.Durability:
        return "replicated" if self._mode == "sync" else self._hot.durability

    @property
    def problem(self) -> str | None:
        return self._hot.problem or self._archive.problem

    @property
    def services(self) -> dict[str, str | None]:
        return {**self._hot.services, "mongo": self._archive.problem}

    @property
    def shared(self) -> ArchivedShared:
        return self._shared

    async def define(self, change: base.Change) -> None:
        self._writer.check_room()
        await self._defining.apply(change)

    # Messages.

    async def publish(self, queue: str, batch: NewBatch) -> PublishResult:
        return await self._publishing.publish(queue, batch)

    async def receive(self, queue: str, subscription: str, wanted: base.Wanted) -> list[Delivery]:
        given = await self._completeness.call(
            queue, lambda: self._hot.receive(queue, subscription, wanted)
        )
        if given:
            self._mirror.mark_changed(queue)
            if subscription == DEFAULT_SUBSCRIPTION:
                self._mirror.note_deliveries(queue, given)
        return given

    async def settle(
        self, queue: str, subscription: str, settlements: Sequence[base.Settlement]
    ) -> list[Sequence[Outcome]]:
        outcomes = await self._completeness.call(
            queue, lambda: self._hot.settle(queue, subscription, settlements)
        )
        self._mirror.mark_changed(queue)
        return outcomes

    # Reading.

    async def read(self, queue: str, wanted: base.Span | Sequence[str]) -> list[Message]:
        return await self._completeness.call(queue, lambda: self._hot.read(queue, wanted))

    async def scan(self, queue: str, start: int, stop: int, most_bytes: int) -> Chunk:
        return await self._completeness.call(
            queue, lambda: self._hot.scan(queue, start, stop, most_bytes)
        )

    async def view(
        self, queue: str, subscription: str, which: base.View, limit: int, start: int = 0
    ) -> list[ViewedMessage]:
        """Consumed messages that the hot store has removed come from the record.

        Only the record has the delivery counts of consumed messages. While MongoDB is away, only
        messages in the hot store are shown.
        """
        hot = await self._completeness.call(
            queue, lambda: self._hot.view(queue, subscription, which, limit, start)
        )
        if which == "unsettled" or subscription != DEFAULT_SUBSCRIPTION or self._archive.problem:
            return hot
        try:
            salt = await self._archive.salt(queue)
            if salt is None:
                return hot
            documents = await self._archive.consumed(queue, salt, start, limit)
        except StorageError as exc:
            logger.warning("consumed messages of %s could not be looked up: %s", queue, exc)
            return hot
        known = {one.index for one in hot}
        counts = {document["index"]: document["deliveryCount"] for document in documents}
        hot = [
            replace(one, deliveries=counts.get(one.index, 0)) if one.is_settled else one
            for one in hot
        ]
        merged = hot + [
            ViewedMessage.of(
                to_message(queue, document),
                is_settled=True,
                deliveries=document["deliveryCount"],
                leased_until_ns=None,
            )
            for document in documents
            if document["index"] not in known
        ]
        return sorted(merged, key=lambda one: one.index)[:limit]

    async def names(self) -> list[str]:
        return await self._hot.names()

    async def stats(self, after: str = "", limit: int | None = None) -> KnownStats:
        return await self._hot.stats(after, limit)

    async def queue_stats(self, queue: str, only: Sequence[str] | None = None) -> QueueStats:
        return await self._completeness.call(queue, lambda: self._hot.queue_stats(queue, only))

    # What an operator does.

    async def operate(self, queue: str, action: base.Action) -> int:
        if isinstance(action, base.Purge):
            self._writer.check_room()
            return await self._defining.purge(queue)
        count = await self._completeness.call(queue, lambda: self._hot.operate(queue, action))
        self._mirror.mark_changed(queue)
        return count

    async def held(self, queue: str, subscription: str, limit: int) -> list[HeldMessage]:
        return await self._completeness.call(
            queue, lambda: self._hot.held(queue, subscription, limit)
        )

    # Waiting and time.

    async def wait(
        self, queue: str, subscription: str, timeout_seconds: float, beyond: int | None = None
    ) -> int | None:
        return await self._completeness.call(
            queue, lambda: self._hot.wait(queue, subscription, timeout_seconds, beyond)
        )

    async def callbacks(self, queue: str | None = None) -> list[CallbackTarget]:
        return await self._hot.callbacks(queue)

    def watch_letters(self, watch: base.LetterWatch) -> None:
        self._hot.watch_letters(watch)

    async def tick(self) -> None:
        """Do what is due now; the record follows."""
        await self._run_all([self._hot.tick, self.copy_all])

    async def check_answered(self) -> None:
        """Restore what the hot store has lost after it was answered."""
        await self._publishing.check_answered()

    async def copy_changed(self) -> None:
        """Bring the record up to date with what this server has changed."""
        await self._unless_old(self._mirror.copy_changed)

    async def copy_all(self) -> None:
        """Bring the record up to date, whoever made the changes."""
        await self._run_all([self._find_lost, self._copy_all])

    async def _find_lost(self) -> None:
        """Recover if a queue in the record is missing in the hot store."""
        if await self._archive.names() - set(await self._hot.known_names()):
            await self.recover()

    async def _copy_all(self) -> None:
        await self._unless_old(self._mirror.copy_all)

    async def _unless_old(self, copy: Callable[[], Awaitable[None]]) -> None:
        """Copy, or recover if the hot store has come back with old data."""
        try:
            await copy()
        except IndexTaken:
            await self.recover()

    async def sweep(self) -> None:
        """Remove what has expired from the record, if MongoDB does not do so by itself."""
        await self._mirror.sweep()

    def start_ticking(self) -> None:
        """Do all of this regularly until the store is closed."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick_forever())

    async def _tick_forever(self) -> None:
        next_pass = next_sweep = 0.0
        is_behind = False
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(MARK_SECONDS)
            now = loop.time()
            try:
                if self._archive.problem is not None:
                    await self._archive.ping()
                work = [
                    self._locks.release_left,
                    self._completeness.check,
                    self.check_answered,
                    self.copy_changed,
                ]
                if now >= next_pass and await self._is_our_turn("archive-pass", PASS_SECONDS):
                    next_pass = now + PASS_SECONDS
                    work.append(self.copy_all)
                if now >= next_sweep and await self._is_our_turn("archive-sweep", SWEEP_SECONDS):
                    next_sweep = now + SWEEP_SECONDS
                    work.append(self.sweep)
                await self._run_all(work)
            except PenstockError as exc:
                if not is_behind:
                    logger.error("the archive is behind: %s", exc)
                is_behind = True
            except Exception:
                logger.exception("the regular work of the archive failed")
            else:
                if is_behind:
                    logger.info("the archive has caught up")
                is_behind = False

    async def _is_our_turn(self, lock: str, seconds: float) -> bool:
        """Whether this server does the work in this period: the one that gets the lock does.

        The lock is left to expire. While its node is away, all servers do the work, which is
        harmless but costs more.
        """
        try:
            return await self._hot.lock(lock, seconds)
        except StoreUnavailable:
            return True

    async def _run_all(self, work: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run all of these, even if a node is away for some, or a queue fails.

        Raises the error at the end.
        """
        failure: StorageError | None = None
        for one in work:
            try:
                await one()
            except StorageError as exc:
                if isinstance(exc, StoreUnavailable) and self.problem is not None:
                    raise
                failure = exc
        if failure is not None:
            raise failure

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # Shielded, so that it completes even if this caller is cancelled.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self._writer.finish(_CLOSE_SECONDS)
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._mirror.copy_changed()
                await self._locks.release_left()
        except (PenstockError, TimeoutError) as exc:
            logger.error("the archive is behind: %s", exc)
        await self._hot.close()
        await self._archive.close()

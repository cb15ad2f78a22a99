"""Publishing to the hot store and the record, and ensuring that messages are in both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from penstock.core.message import Message
from penstock.core.publishing import NewBatch, PublishResult
from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage.archiving import HotStore
from penstock.storage.mongo.archive import Archive, IndexTaken
from penstock.storage.mongo.completeness import Completeness
from penstock.storage.mongo.documents import batch_documents, message_document
from penstock.storage.mongo.recovery import index_of, is_lost
from penstock.storage.mongo.writer import Writer

__all__ = ["ArchiveMode", "Publishing"]

ArchiveMode = Literal["sync", "async"]

_ATTEMPTS = 5


class Publishing:
    """The hot store assigns the index, then the record gets the messages.

    Redis may lose them in between, or be rebuilt from a record that does not have them yet. So the
    hot store is checked once more before the answer ``replicated``, and some time after it.
    """

    def __init__(
        self,
        hot: HotStore,
        archive: Archive,
        writer: Writer,
        completeness: Completeness,
        mode: ArchiveMode,
    ) -> None:
        self._hot = hot
        self._archive = archive
        self._writer = writer
        self._completeness = completeness
        self._mode = mode
        self._versions: dict[str, str] = {}  # of queues, after the last publish
        # The index and id of the newest answered message of each queue, until it is checked.
        self._answered: dict[str, tuple[int, str]] = {}

    async def publish(self, queue: str, batch: NewBatch) -> PublishResult:
        self._writer.check_room()
        before = self._versions.get(queue)
        result = await self._completeness.call(queue, lambda: self._hot.publish(queue, batch))
        written = self._writer.add(queue, batch_documents(queue, batch, result))
        if self._mode == "async":
            return result
        try:
            version = await asyncio.shield(written)
            if result.duplicates:
                version = await self._archive_duplicates(queue, result)
            if version is None or version != before:
                await self._ensure_in_hot_store(queue, [message.id for message in result])
                if version is not None:
                    self._versions[queue] = version
        except IndexTaken as exc:
            await self._completeness.recover({queue: exc.index})
            raise StoreUnavailable(
                "Redis had lost messages and was rebuilt, this publish with it: try again"
            ) from exc
        result.durability = "replicated"
        if batch.bodies:
            newest = (result[-1].index, result[-1].id)
            self._answered[queue] = max(newest, self._answered.get(queue, newest))
        return result

    async def _ensure_in_hot_store(self, queue: str, ids: Sequence[str]) -> None:
        """Restore messages that are lost because a rebuild came before they were archived."""

        async def find_lost() -> list[str]:
            there = {message.id for message in await self._hot.read(queue, ids)}
            return [id for id in ids if id not in there and await is_lost(self._hot, queue, id)]

        for _ in range(_ATTEMPTS):
            try:
                lost = await self._completeness.call(queue, find_lost)
            except QueueNotFound:
                return  # deleted meanwhile
            if not lost:
                return
            await self._completeness.recover({queue: index_of(lost[0])})
        raise StoreUnavailable("Redis is being rebuilt, this publish with it: try again")

    async def check_answered(self) -> None:
        """Restore what the hot store has lost after it was answered.

        Checking the newest message of a queue is enough: a publish in the place of an earlier one
        finds the index taken.
        """
        answered, self._answered = self._answered, {}
        failure: StoreUnavailable | None = None
        while answered:
            queue, (index, id) = next(iter(answered.items()))
            try:
                if await is_lost(self._hot, queue, id):
                    await self._completeness.recover({queue: index})
            except QueueNotFound:
                pass  # deleted, or lost: then it will be rebuilt from the record, which has them
            except StoreUnavailable as exc:
                # A node that is away must not affect the others.
                failure = exc
                self._check_again({queue: (index, id)})
            except BaseException:
                self._check_again(answered)
                raise
            del answered[queue]
        if failure is not None:
            raise failure

    def _check_again(self, answered: dict[str, tuple[int, str]]) -> None:
        """Check these the next time, unless something newer was answered meanwhile."""
        self._answered = answered | self._answered

    async def _archive_duplicates(self, queue: str, result: PublishResult) -> str | None:
        """Archive the originals of duplicates: their server may have died before it did.

        Returns the queue's version when they are in the record, like `Writer.add`: if the queue was
        rebuilt before, they may be lost.
        """
        ids = await self._archive.missing(queue, set(result.duplicates.values()))
        found: list[Message] = []
        if ids:
            found = await self._completeness.call(queue, lambda: self._hot.read(queue, ids))
        return await self._writer.add(queue, [message_document(message) for message in found])

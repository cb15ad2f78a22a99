"""A publish into the hot store and the record, and what makes sure that it is in both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from penstock.core.publishing import NewBatch, PublishResult
from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage.archiving import HotStore
from penstock.storage.mongo.archive import Archive, IndexTaken
from penstock.storage.mongo.documents import batch_documents, message_document
from penstock.storage.mongo.recovery import index_of, is_lost
from penstock.storage.mongo.wholeness import Wholeness
from penstock.storage.mongo.writer import Writer

__all__ = ["ArchiveMode", "Publishing"]

ArchiveMode = Literal["sync", "async"]

_ATTEMPTS = 5


class Publishing:
    """The hot store gives the index, then the record gets the messages.

    Redis may lose them in between, or be rebuilt from a record that does not have them yet: so the
    hot store is looked at once more before it is answered ``replicated``, and some time after.
    """

    def __init__(
        self, hot: HotStore, archive: Archive, writer: Writer, whole: Wholeness, mode: ArchiveMode
    ) -> None:
        self._hot = hot
        self._archive = archive
        self._writer = writer
        self._whole = whole
        self._mode = mode
        self._versions: dict[str, str] = {}  # of queues, as they were after the last publish
        # By queue, index and id of the newest message that was answered, until it is looked for.
        self._answered: dict[str, tuple[int, str]] = {}

    async def publish(self, queue: str, batch: NewBatch) -> PublishResult:
        self._writer.check_room()
        before = self._versions.get(queue)
        result = await self._whole.ask(queue, lambda: self._hot.publish(queue, batch))
        written = self._writer.add(queue, batch_documents(queue, batch, result))
        if self._mode == "async":
            return result
        try:
            version = await asyncio.shield(written)
            if result.duplicates:
                await self._add_missing(queue, result)
            if version is None or version != before:
                await self._make_sure(queue, [message.id for message in result])
                if version is not None:
                    self._versions[queue] = version
        except IndexTaken as exc:
            await self._whole.recover({queue: exc.index})
            raise StoreUnavailable(
                "Redis had lost messages and was rebuilt, this publish with it: try again"
            ) from exc
        result.durability = "replicated"
        if batch.bodies:
            newest = (result[-1].index, result[-1].id)
            self._answered[queue] = max(newest, self._answered.get(queue, newest))
        return result

    async def _make_sure(self, queue: str, ids: Sequence[str]) -> None:
        """The hot store has them, although it may have been rebuilt before the record had them."""
        for _ in range(_ATTEMPTS):
            try:
                found = await self._whole.ask(queue, lambda: self._hot.find(queue, ids))
                lost = [
                    id
                    for id, message in zip(ids, found, strict=True)
                    if message is None and await is_lost(self._hot, queue, id)
                ]
            except QueueNotFound:
                return  # deleted meanwhile
            if not lost:
                return
            await self._whole.recover({queue: index_of(lost[0])})
        raise StoreUnavailable("Redis is being rebuilt, this publish with it: try again")

    async def check_answered(self) -> None:
        """Put back what the hot store has lost by itself after it was answered for.

        It is enough to look for the newest of a queue: whatever is published in the place of one
        before it finds the place taken.
        """
        answered, self._answered = self._answered, {}
        failure: StoreUnavailable | None = None
        while answered:
            queue, (index, id) = next(iter(answered.items()))
            try:
                if await is_lost(self._hot, queue, id):
                    await self._whole.recover({queue: index})
            except QueueNotFound:
                pass  # deleted, or lost: then it is rebuilt from a record that has them
            except StoreUnavailable as exc:
                # A node that is away keeps nobody from the others.
                failure = exc
                self._look_again({queue: (index, id)})
            except BaseException:
                self._look_again(answered)
                raise
            del answered[queue]
        if failure is not None:
            raise failure

    def _look_again(self, answered: dict[str, tuple[int, str]]) -> None:
        """Unless something newer was answered meanwhile."""
        self._answered = answered | self._answered

    async def _add_missing(self, queue: str, result: PublishResult) -> None:
        """The first publish of a duplicate may have died before it was archived."""
        ids = await self._archive.missing(queue, set(result.duplicates.values()))
        if ids:
            found = [message for message in await self._hot.find(queue, ids) if message]
            await self._writer.add(queue, [message_document(message) for message in found])

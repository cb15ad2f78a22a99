"""Inserts documents in groups: what arrives during one insert joins the next.

A document that could not be written is retried until it is: the hot store has its message, so the
record must have it too. Beyond a bound, publishes are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from copy import copy

from penstock.errors import StorageError, StoreUnavailable
from penstock.storage.mongo.archive import Archive, IndexTaken
from penstock.storage.mongo.connection import Document

__all__ = ["Writer"]

logger = logging.getLogger(__name__)

MAX_DOCUMENTS = 100_000
_MAX_AT_ONCE = 10_000
_RETRY_SECONDS = 0.5

GetVersion = Callable[[str], Awaitable[str | None]]
Written = asyncio.Future[str | None]
Call = tuple[Sequence[Document], Written]


class Writer:
    """Inserts the documents of a queue in order. ``version`` gets its version in the hot store."""

    def __init__(self, archive: Archive, version: GetVersion, most: int = MAX_DOCUMENTS) -> None:
        self._archive = archive
        self._version = version
        self._most = most
        self._waiting: dict[str, list[Call]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.unwritten = 0

    def check_room(self) -> None:
        """Raises `StoreUnavailable` if nothing can be archived now. Called before a publish."""
        if self._archive.problem is not None:
            raise StoreUnavailable(self._archive.problem)
        if self.unwritten >= self._most:
            raise StoreUnavailable(
                f"{self.unwritten} messages wait to be archived, which is the limit: try again"
            )

    def add(self, queue: str, documents: Sequence[Document]) -> Written:
        """A future that is done when they are in the record, with the queue's version at that time.

        It fails if they could not be written yet, or the version could not be read.
        """
        loop = asyncio.get_running_loop()
        written: Written = loop.create_future()
        # Retrieve the exception, in case nobody awaits it.
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.unwritten += len(documents)
        self._waiting.setdefault(queue, []).append((documents, written))
        if queue not in self._tasks:
            self._tasks[queue] = loop.create_task(self._write_all(queue))
        return written

    async def _write_all(self, queue: str) -> None:
        """Insert until no call of this queue is waiting."""
        try:
            while calls := self._next_calls(queue):
                documents = [document for part, _ in calls for document in part]
                await self._write(queue, documents, [written for _, written in calls])
                self.unwritten -= len(documents)
        finally:
            del self._tasks[queue]

    def _next_calls(self, queue: str) -> list[Call]:
        """The first waiting calls, whose documents are inserted together: at least one if any."""
        calls = self._waiting.pop(queue, [])
        count = 0
        for at, (documents, _) in enumerate(calls):
            count += len(documents)
            if at and count > _MAX_AT_ONCE:
                self._waiting[queue] = calls[at:]
                return calls[:at]
        return calls

    async def _write(self, queue: str, documents: list[Document], answers: list[Written]) -> None:
        """Insert, and retry while MongoDB is away. Callers learn of the first failure at once."""
        while True:
            try:
                await self._archive.insert(queue, documents)
                break
            except StoreUnavailable as exc:
                _fail_all(answers, exc)
                await asyncio.sleep(_RETRY_SECONDS)
            except (StorageError, IndexTaken) as exc:
                logger.error("messages of %s could not be archived: %s", queue, exc)
                _fail_all(answers, exc)
                return
        try:
            version = await self._version(queue)
        except StorageError as exc:
            _fail_all(answers, exc)
            return
        for answer in answers:
            if not answer.done():
                answer.set_result(version)

    async def finish(self, timeout_seconds: float) -> None:
        """Wait until everything accepted is in the record, or the time is up."""
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self.unwritten:
            logger.error("%d messages are not in the archive", self.unwritten)


def _fail_all(answers: list[Written], error: StorageError) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(copy(error))

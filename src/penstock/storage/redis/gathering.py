"""Publishes that arrive together are stored together, in the order of their arrival.

A server has one publish per queue under way at a time. What arrives meanwhile joins the next one,
so that many small publishes cost few round trips.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from penstock.core.limits import MAX_BATCH_BYTES, MAX_BATCH_MESSAGES
from penstock.core.publishing import NewBatch, PublishResult, merge
from penstock.errors import InvalidArgument, QueueFull
from penstock.storage.answers import reject

__all__ = ["Gathering"]

Publish = Callable[[str, NewBatch], Awaitable[PublishResult]]
Call = tuple[NewBatch, asyncio.Future[PublishResult]]


class Gathering:
    """The waiting calls of each queue."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._lines: dict[str, list[Call]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, queue: str, batch: NewBatch) -> asyncio.Future[PublishResult]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[PublishResult] = loop.create_future()
        self._lines.setdefault(queue, []).append((batch, answer))
        if queue not in self._tasks:
            self._tasks[queue] = loop.create_task(self._work_off(queue))
        return answer

    async def _work_off(self, queue: str) -> None:
        try:
            while calls := self._lines.pop(queue, None):
                for group in _groups(calls):
                    await self._publish_group(queue, group)
        finally:
            del self._tasks[queue]

    async def _publish_group(self, queue: str, calls: list[Call]) -> None:
        """Every caller is answered, whatever happens to the others."""
        batches = [batch for batch, _ in calls]
        try:
            result = await self._publish(queue, merge(batches) if len(calls) > 1 else batches[0])
        except Exception as exc:
            if isinstance(exc, (QueueFull, InvalidArgument)) and len(calls) > 1:
                # It applies to each call: one may be accepted where another is not.
                for call in calls:
                    await self._publish_group(queue, [call])
            else:
                for _, answer in calls:
                    reject(answer, exc)
            return
        for (_, answer), share in zip(calls, result.split(batches), strict=True):
            if not answer.done():
                answer.set_result(share)

    async def finish(self) -> None:
        """Wait until everything accepted is answered."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _groups(calls: list[Call]) -> Iterator[list[Call]]:
    """Calls that fit into one batch, in order. A call with a key goes by itself."""
    group: list[Call] = []
    count = size = 0
    for call in calls:
        count += len(call[0].bodies)
        size += call[0].size
        is_full = count > MAX_BATCH_MESSAGES or size > MAX_BATCH_BYTES
        if group and (is_full or call[0].keys or group[-1][0].keys):
            yield group
            group, count, size = [], len(call[0].bodies), call[0].size
        group.append(call)
    if group:
        yield group

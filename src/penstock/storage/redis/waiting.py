"""Waiting on a subscription: until something may be deliverable, or until there is news."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.core.callback import News
from penstock.errors import NotFound
from penstock.storage.redis.channels import Channels
from penstock.storage.redis.steps import Steps, on

__all__ = ["Waiting"]

# What is due here may not be due in Redis yet: the clocks differ.
_SHORTEST_WAIT_SECONDS = 0.01
_MICROSECONDS_PER_SECOND = 1_000_000


class Waiting:
    """Checks only after it has subscribed to the news, so that none is missed; then sleeps."""

    def __init__(self, steps: Steps, channels: Channels) -> None:
        self._steps = steps
        self._channels = channels

    async def wait(self, queue: str, subscription: str, timeout_seconds: float) -> bool:
        (await self._steps.definition(queue)).reader(subscription)
        channel = self._steps.keys.news(queue)
        async with self._channels.waiter(channel, subscription) as waiter:
            _, (_, is_there, due) = await self._steps.take("peek", queue, on(subscription))
            if is_there:
                return True
            seconds = timeout_seconds
            if due >= 0:
                until_due = max(_SHORTEST_WAIT_SECONDS, due / _MICROSECONDS_PER_SECOND)
                seconds = min(seconds, until_due)
            try:
                async with asyncio.timeout(seconds):
                    await waiter.future
            except TimeoutError:
                # If it was woken just as the time was up, it must count as woken.
                return waiter.is_woken or seconds < timeout_seconds
        return True

    async def wait_news(
        self, queue: str, subscription: str, seen: int, timeout_seconds: float
    ) -> News:
        (await self._steps.definition(queue)).reader(subscription)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        while True:
            async with self._channels.waiter(self._steps.keys.news(queue), None) as waiter:
                news = await self._news_of(queue, subscription)
                if news is None:  # it was deleted meanwhile
                    return News(seen=seen, ready=0, lowest_unacked_index=0)
                if news.seen != seen or loop.time() >= until:
                    return news
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await waiter.future

    async def _news_of(self, queue: str, subscription: str) -> News | None:
        try:
            _, answer = await self._steps.take("news", queue, on(subscription))
        except NotFound:
            return None
        _, seen, ready, floor = answer
        return News(seen=seen, ready=ready, lowest_unacked_index=floor)

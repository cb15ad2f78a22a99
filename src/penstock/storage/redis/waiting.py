"""Waiting on a subscription: until something may be deliverable, or until more has arrived."""

from __future__ import annotations

import asyncio
from contextlib import suppress

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

    async def wait(self, queue: str, subscription: str, timeout_seconds: float) -> int | None:
        (await self._steps.definition(queue)).reader(subscription)
        channel = self._steps.keys.news(queue)
        async with self._channels.waiter(channel, subscription) as waiter:
            is_there, due, arrivals = await self._peek(queue, subscription)
            if is_there:
                return arrivals
            seconds = timeout_seconds
            if due >= 0:
                until_due = max(_SHORTEST_WAIT_SECONDS, due / _MICROSECONDS_PER_SECOND)
                seconds = min(seconds, until_due)
            try:
                async with asyncio.timeout(seconds):
                    await waiter.future
            except TimeoutError:
                # If it was woken just as the time was up, it must count as woken.
                if not waiter.is_woken and seconds >= timeout_seconds:
                    return None
        return arrivals

    async def wait_beyond(
        self, queue: str, subscription: str, beyond: int, timeout_seconds: float
    ) -> int | None:
        (await self._steps.definition(queue)).reader(subscription)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_seconds
        while True:
            async with self._channels.waiter(self._steps.keys.news(queue), None) as waiter:
                try:
                    _, _, arrivals = await self._peek(queue, subscription)
                except NotFound:  # it was deleted meanwhile
                    return None
                if arrivals != beyond:
                    return arrivals
                if loop.time() >= until:
                    return None
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await waiter.future

    async def _peek(self, queue: str, subscription: str) -> tuple[bool, int, int]:
        """Whether something is deliverable, when something is due, and the number of arrivals."""
        _, (_, is_there, due, arrivals) = await self._steps.take("peek", queue, on(subscription))
        return bool(is_there), due, arrivals

"""A broker whose subscriptions are called back, and somebody to be called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest_asyncio

from penstock import Backoff, Callback
from penstock.broker import Broker
from penstock.core.message import Message
from penstock.core.stats import SubscriptionStats
from penstock.push import LOOPBACK, Dispatcher
from penstock.storage.registry import open_store
from tests.push.receiver import PATIENCE_SECONDS, Receiver

QUEUE = "jobs"
SOON = Backoff(base_seconds=0.001)


async def subscribe(broker: Broker, url: str, name: str = "called", **settings: Any) -> str:
    callback = {
        key: settings.pop(key)
        for key in ("concurrency", "timeout_seconds", "ordered", "cloudevents")
        if key in settings
    }
    made = await broker.create_subscription(
        QUEUE,
        name,
        callback=Callback(url=url, **callback),
        **{"backoff": SOON, **settings},
    )
    assert made.secret is not None
    return made.secret


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(await open_store("memory:")) as broker:
        await broker.create_queue(QUEUE)
        yield broker


@pytest_asyncio.fixture
async def dispatcher(broker: Broker) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(broker, allowed=LOOPBACK)
    await dispatcher.start()
    yield dispatcher
    await dispatcher.close(grace_seconds=0)


async def stats_of(broker: Broker, subscription: str, queue: str = QUEUE) -> SubscriptionStats:
    found = await broker.queue_stats(queue)
    return next(one for one in found.subscriptions if one.name == subscription)


async def until_stats(
    broker: Broker, subscription: str, condition: Callable[[SubscriptionStats], bool]
) -> SubscriptionStats:
    """What a call led to is written a moment after its answer."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            stats = await stats_of(broker, subscription)
            if condition(stats):
                return stats
            await asyncio.sleep(0.002)


async def dead_letters(broker: Broker, count: int, queue: str = QUEUE) -> list[Message]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            letters = await broker.dead_letters(queue)
            if len(letters) >= count:
                return letters
            await asyncio.sleep(0.002)

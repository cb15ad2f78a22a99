"""What a server does by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.storage.mongo import store as module
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from tests.mongo.conftest import Addresses


async def _wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_server_writes_marks_and_rebuilds_a_wiped_redis_unasked(
    broker: Broker,
    store: ArchivedStore,
    addresses: Addresses,
    database: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MARK_SECONDS", 0.01)
    store.start_ticking()
    await broker.publish("jobs", [b"a", b"b"])
    await broker.ack("jobs", await broker.receive("jobs", limit=1))

    async def is_marked() -> bool:
        return bool(await database["jobs"].count_documents({"consumed": True}) == 1)

    await _wait_until(is_marked)
    # When Redis is wiped, and nobody asks this server for anything
    await addresses.wipe_redis()
    redis = await RedisStore.open(addresses.redis)

    async def is_there() -> bool:
        return await redis.snapshot("jobs") is not None

    await _wait_until(is_there)
    assert [d.body for d in await Broker(redis).receive("jobs", limit=9)] == [b"b"]
    await redis.close()


async def test_a_queue_that_is_made_in_the_wrong_moment_does_not_cost_the_old_messages(
    broker: Broker, store: ArchivedStore, addresses: Addresses, database: Any
) -> None:
    # Given a Redis that is wiped, and a queue that is made anew behind the archive's back
    await broker.publish("jobs", [b"old"])
    await addresses.wipe_redis()
    redis = await RedisStore.open(addresses.redis)
    await Broker(redis).create_queue("jobs")
    # When the record follows
    await store.copy_all()
    # Then the old messages are still in it
    assert await database["jobs"].count_documents({"content": "old"}) == 1
    await redis.close()

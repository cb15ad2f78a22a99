"""A cluster with a record behind it: a node is away when a server starts, and comes back empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from pymongo import AsyncMongoClient
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.errors import StoreUnavailable
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from tests.mongo_server import mongo_url, remove_database, with_database
from tests.redis.test_cluster import elsewhere
from tests.redis_cluster import cluster_url, node_of, prefix_with, remove_cluster_keys
from tests.redis_server import standing_still, unique_prefix, with_prefix

_SECONDS = 60


@pytest_asyncio.fixture
async def name(tmp_path: Path) -> AsyncIterator[str]:
    """The prefix of the test's keys, and the name of its database."""
    cluster_url()
    mongo_url()
    name = prefix_with(unique_prefix(tmp_path), list=False, mark=False, rebuilding=False)
    yield name
    remove_cluster_keys(name)
    await remove_database(mongo_url(), name)


async def open_store(name: str) -> ArchivedStore:
    hot = await RedisStore.open(with_prefix(cluster_url(), name))
    return await ArchivedStore.open(hot, with_database(mongo_url(), name))


async def wipe_node_of(name: str, queue: str) -> None:
    """Remove all keys on the node of a queue, as if it had restarted without its data."""
    async with Redis(port=node_of(queue)) as redis:
        keys = [key async for key in redis.scan_iter(match=f"{name}:*", count=1000)]
        await redis.unlink(*keys)


async def test_a_node_that_was_away_at_the_start_is_made_whole_when_it_is_back(name: str) -> None:
    # Given queues on two nodes, of which one will have lost everything
    here, new = (elsewhere(node_of("away"), one) for one in ("here", "new"))
    first = await open_store(name)
    broker = Broker(first)
    for queue in ("away", here):
        await broker.create_queue(queue)
    sent = [one.id for one in await broker.publish("away", [b"a", b"b", b"c"])]
    await broker.ack("away", await broker.receive("away"))
    await first.copy_all()
    await broker.close()
    await wipe_node_of(name, "away")
    with standing_still(f"redis://127.0.0.1:{node_of('away')}"):
        # When a server starts while that node stands still
        store = await open_store(name)
        broker = Broker(store)
        assert store.behind is not None
        # Then it serves the other, and the record of that goes on
        await broker.publish(here, [b"d"])
        await broker.ack(here, await broker.receive(here))
        with suppress(StoreUnavailable):
            await store.tick()
        async with AsyncMongoClient[dict[str, object]](mongo_url()) as client:
            document = await client[name][here].find_one({})
            assert document is not None
            assert document["consumed"] is True
        # And a queue of the node can be neither used nor made anew
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await broker.create_queue("away")
        with pytest.raises(StoreUnavailable):
            await broker.receive("away")
    # And when it is back, without anything, its queue is rebuilt before anybody is told otherwise
    async with asyncio.timeout(_SECONDS):
        while store.behind is not None:
            await broker.create_queue(new)
            await broker.delete_queue(new)
    assert [one.id for one in await broker.receive("away", limit=9)] == sent[1:]
    assert [one.name for one in await broker.stats()] == ["away", here]
    await broker.close()

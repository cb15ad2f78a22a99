from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio
from pymongo import AsyncMongoClient
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.storage.mongo.store import ArchivedStore, ArchiveMode
from penstock.storage.registry import open_archived
from tests.mongo_server import mongo_url, remove_database, with_database
from tests.redis_server import redis_url, remove_keys, unique_prefix, with_prefix


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """A Redis and a MongoDB, with a key prefix and a database that are the test's own: ``name``."""

    redis: str
    mongo: str
    name: str

    async def wipe_redis(self) -> None:
        await remove_keys(redis_url(), self.name)


Open = Callable[..., Awaitable[ArchivedStore]]


@pytest_asyncio.fixture
async def addresses(tmp_path: Path) -> AsyncIterator[Addresses]:
    name = unique_prefix(tmp_path)
    yield Addresses(
        redis=with_prefix(redis_url(), name), mongo=with_database(mongo_url(), name), name=name
    )
    await remove_keys(redis_url(), name)
    await remove_database(mongo_url(), name)


@pytest_asyncio.fixture
async def open_server(addresses: Addresses) -> AsyncIterator[Open]:
    """Opens any number of servers, which do no regular work unless the test calls for it."""
    stores: list[ArchivedStore] = []

    async def open_one(mode: ArchiveMode = "sync", mongo: str = addresses.mongo) -> ArchivedStore:
        store = await open_archived(addresses.redis, mongo, mode)
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()


@pytest_asyncio.fixture
async def store(open_server: Open) -> ArchivedStore:
    return await open_server()


@pytest_asyncio.fixture
async def broker(store: ArchivedStore) -> Broker:
    """A broker with a queue `jobs`."""
    broker = Broker(store)
    await broker.create_queue("jobs")
    return broker


@pytest_asyncio.fixture
async def database(addresses: Addresses) -> AsyncIterator[Any]:
    """The test's own database in MongoDB."""
    async with AsyncMongoClient[dict[str, Any]](mongo_url()) as client:
        yield client[addresses.name]


@asynccontextmanager
async def redis_rolled_back(addresses: Addresses) -> AsyncIterator[None]:
    """At the end, Redis has what it had at the beginning: everything since then is lost."""
    async with Redis.from_url(redis_url()) as redis:
        copy = {}
        async for key in redis.scan_iter(match=f"{addresses.name}:*"):
            value = await redis.dump(key)
            if value is not None:  # a lock may just have ended
                copy[key] = value
        yield
        await addresses.wipe_redis()
        for key, value in copy.items():
            await redis.restore(key, 0, value)

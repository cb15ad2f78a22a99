from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.storage.redis.store import RedisStore
from tests.redis_server import redis_url, remove_keys, unique_prefix, with_prefix


@pytest_asyncio.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Of a Redis, with keys that are the test's own."""
    prefix = unique_prefix(tmp_path)
    yield with_prefix(redis_url(), prefix)
    await remove_keys(redis_url(), prefix)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The key of the queue `jobs`; all its other keys begin with it."""
    return unique_prefix(tmp_path) + ":{jobs}"


@pytest_asyncio.fixture
async def store(address: str) -> AsyncIterator[RedisStore]:
    """By Redis's own time."""
    store = await RedisStore.open(address)
    yield store
    await store.close()


@pytest_asyncio.fixture
async def broker(store: RedisStore) -> Broker:
    """With a queue `jobs`."""
    broker = Broker(store)
    await broker.create_queue("jobs")
    return broker


@pytest_asyncio.fixture
async def redis() -> AsyncIterator[Redis]:
    """What an operator has: redis-cli."""
    async with Redis.from_url(redis_url(), decode_responses=True) as redis:
        yield redis

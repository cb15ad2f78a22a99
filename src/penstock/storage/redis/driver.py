"""The driver's client: of one Redis, of the one that Sentinel names, or of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from redis import exceptions as failures
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.errors import InvalidArgument
from penstock.storage.redis.address import Address

__all__ = ["Driver"]

# As many as there are requests at once.
_CONNECTIONS = 2**31 - 1
# One Sentinel that does not answer must not keep us from asking the next.
_SENTINEL_SECONDS = 1.0
# How often a command follows a queue from node to node.
_MOST_MOVES = 16


async def _run_both(
    pipeline: Any, command: Sequence[Any], wait: Sequence[Any], **options: Any
) -> tuple[Any, int]:
    """On one connection, whose writes are what is waited for; nothing is sent a second time."""
    pipeline.execute_command(*command, **options)
    pipeline.execute_command(*wait, **options)
    once = {"allow_redirections": False} if options else {}
    answer, reached = await pipeline.execute(raise_on_error=False, **once)
    for one in (answer, reached):
        if isinstance(one, Exception):
            raise one
    return answer, reached


class Driver:
    """Nobody is asked before the first command.

    `redis` has the commands. After a failover they go to the Redis that has taken over: Sentinel is
    asked at each new connection, and a cluster's map is read again.
    """

    def __init__(self, address: Address, timeout_seconds: float) -> None:
        self._address = address
        self._options: dict[str, Any] = {
            "protocol": 2,
            # None of the driver's: with one it makes a task for each command, which may also take
            # the cancellation of its caller for its own.
            "socket_timeout": None,
            "socket_connect_timeout": timeout_seconds,
            # A publish must not be sent twice by itself; who asked may do so.
            "retry": Retry(NoBackoff(), 0),
            **address.options,
        }
        self._cluster: RedisCluster | None = None
        self._sentinels: list[Redis] = []
        self._turn = 0
        match address.kind:
            case "single":
                self.redis = self._single()
            case "sentinel":
                self.redis = self._watched()
            case "cluster":
                nodes = [ClusterNode(*host) for host in address.hosts]
                self._cluster = RedisCluster(
                    startup_nodes=nodes,
                    # The queues of a node that is away are; the others need not be.
                    require_full_coverage=False,
                    max_connections=_CONNECTIONS,
                    **self._options,
                )
                # It has the same commands, but is no subclass.
                self.redis = cast(Redis, self._cluster)

    @property
    def is_cluster(self) -> bool:
        return self._cluster is not None

    def _single(self) -> Redis:
        try:
            return Redis.from_url(self._address.url, **self._options)
        except ValueError as exc:
            # Without the url: it may hold a password.
            raise InvalidArgument(f"the store's url is not one of Redis: {exc}") from exc

    def _watched(self) -> Redis:
        own = {
            "socket_timeout": _SENTINEL_SECONDS,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "retry": self._options["retry"],
            **self._address.sentinel_options,
        }
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            self._address.hosts, sentinel_kwargs=own, **self._options
        )
        self._sentinels = sentinel.sentinels
        return cast(Redis, sentinel.master_for(self._address.service))

    async def leave(self) -> None:
        """The Redis that we are connected to has become a replica: connect anew."""
        if self._cluster is None:
            await self.redis.connection_pool.disconnect(inuse_connections=False)

    async def run_replicated(
        self, key: str, command: Sequence[Any], replicas: int, seconds: float
    ) -> tuple[Any, int]:
        """A command that writes at a key: its answer, and how many replicas have it by then.

        It asks for so many and waits no longer than that.
        """
        wait = ("WAIT", replicas, round(seconds * 1000))
        if self._cluster is None:
            return await _run_both(self.redis.pipeline(transaction=False), command, wait)
        cluster = await self._cluster.initialize()
        for _ in range(_MOST_MOVES):
            # Both to the node that has the key: the driver would send the second one anywhere.
            node = {"target_nodes": cluster.get_node_from_key(key)}
            try:
                return await _run_both(cluster.pipeline(), command, wait, **node)
            except failures.MovedError as exc:
                await cluster.nodes_manager.move_slot(exc)
            except (failures.ConnectionError, failures.ClusterDownError):
                # A pipeline does not by itself: ask the others who has taken over.
                await cluster.nodes_manager.initialize()
                raise
        raise failures.RedisClusterException("the nodes do not agree on who has the queue")

    async def config(self, pattern: str) -> list[Any]:
        """Settings by name, of every server that takes writes."""
        if self._cluster is None:
            return [await self.redis.config_get(pattern)]
        found = await self._cluster.config_get(pattern, target_nodes=RedisCluster.PRIMARIES)
        return list(found.values())

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[PubSub]:
        """A connection of its own, for news."""
        if self._cluster is None:
            async with self.redis.pubsub() as pubsub:
                yield pubsub
            return
        # Every node tells the news of all of them. One that fails is not the next to be asked.
        await self._cluster.initialize()
        nodes = self._cluster.get_nodes()
        self._turn += 1
        node = nodes[self._turn % len(nodes)]
        async with (
            Redis(host=str(node.host), port=int(node.port), **self._options) as redis,
            redis.pubsub() as pubsub,
        ):
            yield pubsub

    async def close(self) -> None:
        await self.redis.aclose()
        if self._cluster is not None:
            # Which a client that never got to know the cluster does not do.
            await self._cluster.nodes_manager.aclose("startup_nodes")
        for sentinel in self._sentinels:
            await sentinel.aclose()

"""How commands reach Redis: a single one, the master that Sentinel names, or a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Any, Protocol, cast

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.retry import Retry

from penstock.errors import InvalidArgument
from penstock.storage.redis.address import Address
from penstock.storage.redis.cluster import Cluster
from penstock.storage.redis.node import Node, Settings

__all__ = ["Driver", "Listening", "driver_for"]

# Short, so that a Sentinel that does not answer does not delay asking the next one.
_SENTINEL_SECONDS = 1.0

Listening = AbstractAsyncContextManager[tuple[PubSub, Callable[[], bool]]]
"""See `Driver.listening`."""


class Driver(Protocol):
    """Sends commands, and connects with the first. Deadlines are in the event loop's time."""

    @property
    def is_cluster(self) -> bool: ...

    @property
    def is_partly_available(self) -> bool:
        """Whether at least one node of a cluster works."""

    async def send(
        self, key: str, command: Sequence[Any], deadline: float, replicas: int = 0
    ) -> Any:
        """See `Node.send`. The key determines the node."""

    async def check_masters(self, deadline: float) -> bool:
        """Check each master. Returns whether any settings were read again.

        Raises the driver's errors if none of them works.
        """

    @property
    def settings(self) -> list[Settings | None]:
        """The settings of each master, as last read; None if it could not be reached."""

    @property
    def nodes(self) -> Mapping[str, str | None]:
        """The masters of a cluster, with why one is away, or None. Empty for a single Redis."""

    def listening(self) -> Listening:
        """A connection of its own for news, and a check whether they still arrive there."""

    async def close(self) -> None: ...


def driver_for(address: Address, timeout_seconds: float) -> Driver:
    """The driver for this kind of address. No command may take longer than ``timeout_seconds``."""
    options: dict[str, Any] = {
        "protocol": 2,
        # `Node` sets timeouts: redis-py would make a task for each command, and could mistake the
        # cancellation of its caller for its own timeout.
        "socket_timeout": None,
        "socket_connect_timeout": timeout_seconds,
        # redis-py must not send a publish twice; retrying is up to the caller.
        "retry": Retry(NoBackoff(), 0),
        # Otherwise each new connection looks up the version in the installed files.
        "driver_info": DriverInfo(),
        **address.options,
    }
    match address.kind:
        case "single":
            return _SingleRedis(lambda: _connect_to_url(address, options), timeout_seconds)
        case "sentinel":
            return _SentinelMaster(address, options, timeout_seconds)
        case "cluster":
            return Cluster(
                address.hosts,
                lambda place: Redis(host=place[0], port=place[1], **options),
                timeout_seconds,
            )


def _connect_to_url(address: Address, options: dict[str, Any]) -> Redis:
    try:
        return Redis.from_url(address.url, **options)
    except ValueError as exc:
        # Without the url: it may hold a password.
        raise InvalidArgument(f"the store's url is not one of Redis: {exc}") from exc


class _SingleRedis:
    """A single Redis, or whichever is at its address."""

    is_cluster = False
    is_partly_available = False
    nodes: Mapping[str, str | None] = MappingProxyType({})

    def __init__(self, connect: Callable[[], Redis], timeout_seconds: float) -> None:
        self._connect = connect
        self.settings: list[Settings | None] = [None]
        self._node = Node(connect, timeout_seconds)

    async def send(
        self, key: str, command: Sequence[Any], deadline: float, replicas: int = 0
    ) -> Any:
        return await self._node.send(command, deadline, replicas)

    async def check_masters(self, deadline: float) -> bool:
        self.settings = [await self._node.settings(deadline)]
        return True

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[PubSub, Callable[[], bool]]]:
        async with self._connect() as redis, redis.pubsub() as pubsub:
            yield pubsub, lambda: True

    async def close(self) -> None:
        await self._node.close()


class _SentinelMaster(_SingleRedis):
    """The master, for which the Sentinels are asked at each new connection."""

    def __init__(self, address: Address, options: dict[str, Any], timeout_seconds: float) -> None:
        sentinel_options = {
            "socket_timeout": _SENTINEL_SECONDS,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "retry": options["retry"],
            **address.sentinel_options,
        }
        sentinel = Sentinel(address.hosts, sentinel_kwargs=sentinel_options, **options)  # type: ignore[no-untyped-call]
        self._sentinels: list[Redis] = sentinel.sentinels
        super().__init__(lambda: cast(Redis, sentinel.master_for(address.service)), timeout_seconds)

    async def close(self) -> None:
        await super().close()
        for sentinel in self._sentinels:
            await sentinel.aclose()

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

__all__ = ["Driver", "Listening", "drive"]

# A Sentinel that does not answer must not keep us from asking the next one.
_SENTINEL_SECONDS = 1.0

Listening = AbstractAsyncContextManager[tuple[PubSub, Callable[[], bool]]]


class Driver(Protocol):
    """Connects with the first command. Deadlines are in the event loop's time."""

    @property
    def is_cluster(self) -> bool: ...

    @property
    def is_partly_there(self) -> bool:
        """Whether at least one node of several works."""

    async def send(
        self, key: str, command: Sequence[Any], deadline: float, replicas: int = 0
    ) -> Any:
        """See `Node.send`. The key determines the node."""

    async def look_after(self, deadline: float) -> bool:
        """Check each master. Returns whether any settings were read again.

        Raises the driver's errors if none of them works.
        """

    @property
    def settings(self) -> list[Settings | None]:
        """The settings of each master, as last read; None if it could not be reached."""

    @property
    def nodes(self) -> Mapping[str, str | None]:
        """By address, why a node is away, if it is. Empty for a single Redis."""

    def listening(self) -> Listening:
        """A connection of its own for news, and a check whether they still arrive there."""

    async def close(self) -> None: ...


def drive(address: Address, timeout_seconds: float) -> Driver:
    """``timeout_seconds`` is the longest that a command may take."""
    options: dict[str, Any] = {
        "protocol": 2,
        # Not the driver's: it would make a task for each command, and could mistake the
        # cancellation of its caller for its own timeout.
        "socket_timeout": None,
        "socket_connect_timeout": timeout_seconds,
        # The driver must not send a publish twice; retrying is up to the caller.
        "retry": Retry(NoBackoff(), 0),
        # Otherwise each new connection looks up the version in the installed files.
        "driver_info": DriverInfo(),
        **address.options,
    }
    match address.kind:
        case "single":
            return _Alone(lambda: _single(address, options), timeout_seconds)
        case "sentinel":
            return _Watched(address, options, timeout_seconds)
        case "cluster":
            return Cluster(
                address.hosts,
                lambda place: Redis(host=place[0], port=place[1], **options),
                timeout_seconds,
            )


def _single(address: Address, options: dict[str, Any]) -> Redis:
    try:
        return Redis.from_url(address.url, **options)
    except ValueError as exc:
        # Without the url: it may hold a password.
        raise InvalidArgument(f"the store's url is not one of Redis: {exc}") from exc


class _Alone:
    """A single Redis, or whichever is behind its address."""

    is_cluster = False
    is_partly_there = False
    nodes: Mapping[str, str | None] = MappingProxyType({})

    def __init__(self, connect: Callable[[], Redis], timeout_seconds: float) -> None:
        self._connect = connect
        self.settings: list[Settings | None] = [None]
        self._node = Node(connect, timeout_seconds)

    async def send(
        self, key: str, command: Sequence[Any], deadline: float, replicas: int = 0
    ) -> Any:
        return await self._node.send(command, deadline, replicas)

    async def look_after(self, deadline: float) -> bool:
        self.settings = [await self._node.settings(deadline)]
        return True

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[PubSub, Callable[[], bool]]]:
        async with self._connect() as redis, redis.pubsub() as pubsub:
            yield pubsub, lambda: True

    async def close(self) -> None:
        await self._node.close()


class _Watched(_Alone):
    """Sentinel is asked for the master at each new connection."""

    def __init__(self, address: Address, options: dict[str, Any], timeout_seconds: float) -> None:
        own = {
            "socket_timeout": _SENTINEL_SECONDS,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "retry": options["retry"],
            **address.sentinel_options,
        }
        sentinel = Sentinel(address.hosts, sentinel_kwargs=own, **options)  # type: ignore[no-untyped-call]
        self._sentinels: list[Redis] = sentinel.sentinels
        super().__init__(lambda: cast(Redis, sentinel.master_for(address.service)), timeout_seconds)

    async def close(self) -> None:
        await super().close()
        for sentinel in self._sentinels:
            await sentinel.aclose()

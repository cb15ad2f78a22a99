"""How commands get to Redis: to one, to the one that Sentinel names, or to a cluster's nodes."""

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

# One Sentinel that does not answer must not keep us from asking the next.
_SENTINEL_SECONDS = 1.0

Listening = AbstractAsyncContextManager[tuple[PubSub, Callable[[], bool]]]


class Driver(Protocol):
    """Nobody is asked before the first command. Deadlines are in the time of the event loop."""

    @property
    def is_cluster(self) -> bool: ...

    @property
    def is_partly_there(self) -> bool:
        """Whether one Redis does what it is asked, although another may not."""

    async def send(
        self, key: str, command: Sequence[Any], deadline: float, replicas: int = 0
    ) -> Any:
        """See `Node.send`. The key says where it goes."""

    async def look_after(self, deadline: float) -> bool:
        """Ask each Redis that takes writes whether it does. Whether its settings are news.

        Raises the driver's errors when none of them does.
        """

    @property
    def settings(self) -> list[Settings | None]:
        """Of each Redis that takes writes, as it was asked; None if it was not there."""

    @property
    def nodes(self) -> Mapping[str, str | None]:
        """By address, why a node is away, if it is. None where there is one Redis."""

    def listening(self) -> Listening:
        """A connection of its own, for news; and whether these still come there."""

    async def close(self) -> None: ...


def drive(address: Address, timeout_seconds: float) -> Driver:
    """``timeout_seconds`` is the longest that a command may take."""
    options: dict[str, Any] = {
        "protocol": 2,
        # None of the driver's: with one it makes a task for each command, which may also take
        # the cancellation of its caller for its own.
        "socket_timeout": None,
        "socket_connect_timeout": timeout_seconds,
        # A publish must not be sent twice by itself; who asked may do so.
        "retry": Retry(NoBackoff(), 0),
        # Else each new connection looks its version up in the files of the installation.
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
    """One Redis, or whichever is behind its address."""

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
    """Sentinel is asked at each new connection."""

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

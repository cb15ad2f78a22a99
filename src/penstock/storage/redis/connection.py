"""The connection to Redis: scripts are run here, and the driver's errors translated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis import exceptions as failures
from redis.asyncio import Redis

from penstock.errors import (
    InvalidArgument,
    MemoryFull,
    StorageError,
    StoreUnavailable,
)
from penstock.storage.base import Durability
from penstock.storage.redis.address import parse
from penstock.storage.redis.driver import Driver
from penstock.storage.redis.scripts import script

__all__ = ["MOST", "Argument", "Connection", "bounded", "translated"]

# A server that does not answer for this long is taken to be away.
TIMEOUT_SECONDS = 5.0
# Replicas that do not answer for this long do not have it.
_REPLICAS_SECONDS = 2.0

Argument = str | bytes | int | float
MOST = 2**53
"""The largest whole number that a script tells from its neighbours."""


def bounded(number: int, least: int = 0) -> int:
    """As near to it as a script can have it."""
    return max(least, min(number, MOST))


@contextmanager
def translated() -> Iterator[None]:
    """Raise our own errors instead of the driver's."""
    try:
        yield
    except (
        failures.ConnectionError,
        failures.TimeoutError,
        failures.ReadOnlyError,
        failures.ClusterDownError,
        failures.TryAgainError,
        failures.AskError,
        failures.RedisClusterException,
        OSError,
    ) as exc:
        why = str(exc) or "it does not answer"
        raise StoreUnavailable(f"Redis is away ({why}): try again shortly") from exc
    except failures.OutOfMemoryError as exc:
        raise _full() from exc
    except failures.ResponseError as exc:
        text = str(exc)
        if text.startswith("OOM") or "used memory >" in text:
            raise _full() from exc
        if text.startswith(("MASTERDOWN", "MISCONF", "NOREPLICAS", "LOADING", "READONLY", "BUSY")):
            raise StoreUnavailable(f"Redis refuses for now ({text}): try again shortly") from exc
        raise StorageError(f"Redis refused a command: {text}") from exc
    except failures.RedisError as exc:
        raise StorageError(f"Redis failed: {exc}") from exc


def _full() -> MemoryFull:
    return MemoryFull(
        "Redis has reached its maxmemory; nothing was stored: let consumers catch up, shorten the "
        "retention, or give it more memory"
    )


class Connection:
    """The scripts are loaded when Redis does not know them (any more)."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        address = parse(url)
        self.prefix = address.prefix
        self.driver = Driver(address, timeout_seconds)
        self._replicas = address.replicas
        self._timeout_seconds = timeout_seconds
        self.round_trips = 0

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Redis]:
        """For a few commands that are no script."""
        with translated():
            async with asyncio.timeout(self._timeout_seconds):
                try:
                    yield self.driver.redis
                except failures.ReadOnlyError:
                    await self.driver.leave()
                    raise

    async def run(self, name: str, key: str, *arguments: Argument) -> Any:
        """One script, which is one atomic step."""
        found = script(name)
        async with self.asking() as redis:
            try:
                self.round_trips += 1
                return await self._send(
                    redis, found.writes, key, ("EVALSHA", found.digest, 1, key, *arguments)
                )
            except failures.NoScriptError:
                # Redis was restarted, or another one has taken over. This one learns it.
                self.round_trips += 1
                return await self._send(
                    redis, found.writes, key, ("EVAL", found.text, 1, key, *arguments)
                )

    async def prepare(self, name: str, key: str, *arguments: Argument) -> Any:
        """One command that a script goes on from, which waits for replicas for both.

        But not in a cluster, where they may be on two nodes.
        """
        async with self.asking() as redis:
            return await self._send(redis, self.driver.is_cluster, key, (name, key, *arguments))

    async def _send(
        self, redis: Redis, writes: bool, key: str, command: tuple[Argument, ...]
    ) -> Any:
        if not (self._replicas and writes):
            return await redis.execute_command(*command)  # type: ignore[no-untyped-call]
        answer, reached = await self.driver.run_replicated(
            key, command, self._replicas, _REPLICAS_SECONDS
        )
        if reached < self._replicas:
            raise StoreUnavailable(
                f"Redis has done it, but {reached} of its replicas have it, and {self._replicas} "
                "must: try again shortly"
            )
        return answer

    async def durability(self) -> Durability:
        """What Redis says it does; what it does not say is not promised."""
        found = await self._settings("append*")
        is_synced = bool(found) and all(
            one["appendonly"] == "yes" and one["appendfsync"] == "always" for one in found
        )
        return "fsync" if is_synced else "memory"

    async def check_policy(self) -> None:
        """Raises `InvalidArgument` if Redis would make room by taking away queues."""
        for one in await self._settings("maxmemory-policy"):
            policy = one["maxmemory-policy"]
            if policy.startswith("allkeys"):
                raise InvalidArgument(
                    f"Redis has maxmemory-policy {policy}, and would evict queues when it is full: "
                    "set maxmemory-policy noeviction"
                )

    async def _settings(self, pattern: str) -> list[dict[str, str]]:
        """Of every server that takes writes; none if they do not tell."""
        async with self.asking():
            try:
                return await self.driver.config(pattern)
            except failures.ResponseError:
                return []  # some who rent Redis out do not let one ask

    async def close(self) -> None:
        with translated():
            await self.driver.close()

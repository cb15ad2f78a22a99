"""The connection to Redis: runs scripts, and translates the driver's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import exceptions as failures

from penstock.errors import (
    InvalidArgument,
    MemoryFull,
    StorageError,
    StoreUnavailable,
)
from penstock.storage.base import Durability
from penstock.storage.redis.address import parse
from penstock.storage.redis.driver import driver_for
from penstock.storage.redis.node import Settings
from penstock.storage.redis.scripts import script

__all__ = ["MOST", "TIMEOUT_SECONDS", "Argument", "Connection", "bounded", "translated"]

TIMEOUT_SECONDS = 5.0
"""A server that does not answer for this long counts as away."""

# Prefixes of errors that are temporary.
_FOR_NOW = ("MASTERDOWN", "MISCONF", "NOREPLICAS", "LOADING", "READONLY", "BUSY", "UNBLOCKED")

Argument = str | bytes | int | float
MOST = 2**53
"""The largest integer that a script can represent exactly: Lua's numbers are doubles."""


def bounded(number: int, least: int = 0) -> int:
    """The nearest number that a script can represent."""
    return max(least, min(number, MOST))


@contextmanager
def translated() -> Iterator[None]:
    """Raise our own errors instead of the driver's."""
    try:
        yield
    except (failures.AuthenticationError, failures.AuthorizationError) as exc:
        raise StoreUnavailable(
            f"Redis does not let us in ({exc}): correct the name or the password in the store's url"
        ) from exc
    except (failures.AskError, failures.TryAgainError) as exc:
        raise StoreUnavailable("the queue is moved to another Redis: try again shortly") from exc
    except (
        failures.ConnectionError,
        failures.TimeoutError,
        failures.ReadOnlyError,
        failures.ClusterError,
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
        if text.startswith(_FOR_NOW):
            raise StoreUnavailable(f"Redis refuses for now ({text}): try again shortly") from exc
        raise StorageError(f"Redis refused a command: {text}") from exc
    except failures.RedisError as exc:
        raise StorageError(f"Redis failed: {exc}") from exc


def _is_synced(settings: Settings) -> bool:
    return (settings.get("appendonly"), settings.get("appendfsync")) == ("yes", "always")


def _full() -> MemoryFull:
    return MemoryFull(
        "Redis has reached its maxmemory; nothing was stored: let consumers catch up, shorten the "
        "retention, or give it more memory"
    )


class Connection:
    """Scripts are loaded when Redis does not know them (any more)."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        address = parse(url)
        self.prefix = address.prefix
        self.driver = driver_for(address, timeout_seconds)
        self._replicas = address.replicas
        self._timeout_seconds = timeout_seconds
        self.round_trips = 0

    async def command(self, name: str, key: str, *arguments: Argument) -> Any:
        """Run a plain command."""
        with translated():
            return await self.driver.send(key, (name, key, *arguments), self._deadline())

    async def prepare(self, name: str, key: str, *arguments: Argument) -> Any:
        """Run a command that a script will follow. The script waits for replicas for both.

        In a cluster they may be on two nodes, so there the command waits, too.
        """
        replicas = self._replicas if self.driver.is_cluster else 0
        with translated():
            return await self.driver.send(key, (name, key, *arguments), self._deadline(), replicas)

    async def run(self, name: str, key: str, *arguments: Argument) -> Any:
        """Run a script, which is one atomic step."""
        found = script(name)
        replicas = self._replicas if found.writes else 0
        rest = (*self._keys(key), *arguments)
        deadline = self._deadline()
        with translated():
            try:
                self.round_trips += 1
                command = ("EVALSHA", found.digest, *rest)
                return await self.driver.send(key, command, deadline, replicas)
            except failures.NoScriptError:
                # Redis was restarted, or another node has taken over. EVAL loads the script.
                self.round_trips += 1
                return await self.driver.send(key, ("EVAL", found.text, *rest), deadline, replicas)

    def _keys(self, key: str) -> tuple[Argument, ...]:
        """The number of keys, and the keys: the one that is the prefix of all others of the queue.

        In a cluster, also one that never exists. While a slot is migrated, a node accepts a command
        only if it has all of its keys. Without the extra key, a script would start on a node that
        has only a part of the queue, and fail or go wrong when it comes to the missing part.
        """
        if self.driver.is_cluster and "{" in key:
            return 2, key, f"{key}:nothing"
        return 1, key

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_seconds

    async def check_masters(self) -> bool:
        """See `Driver`. Raises `StoreUnavailable` if no Redis answers."""
        with translated():
            return await self.driver.check_masters(self._deadline())

    def durability(self) -> Durability:
        """``fsync`` only if every Redis is reachable and says that it syncs every write."""
        found = self.driver.settings
        is_synced = bool(found) and all(one is not None and _is_synced(one) for one in found)
        return "fsync" if is_synced else "memory"

    def check_policy(self) -> None:
        """Raises `InvalidArgument` if a Redis would evict queues when it is full."""
        for one in self.driver.settings:
            policy = (one or {}).get("maxmemory-policy", "")
            if policy.startswith("allkeys"):
                raise InvalidArgument(
                    f"Redis has maxmemory-policy {policy}, and would evict queues when it is full: "
                    "set maxmemory-policy noeviction"
                )

    async def close(self) -> None:
        with translated():
            await self.driver.close()

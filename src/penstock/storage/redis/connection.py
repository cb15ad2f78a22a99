"""The connection to Redis: scripts are run here, and the driver's errors translated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode

from redis import exceptions as failures
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.errors import (
    InvalidArgument,
    MemoryFull,
    StorageError,
    StoreUnavailable,
)
from penstock.storage.base import Durability
from penstock.storage.redis.scripts import Script, script

__all__ = ["Connection", "translated"]

DEFAULT_PREFIX = "penstock"
# A server that does not answer for this long is taken to be away.
TIMEOUT_SECONDS = 5.0

Argument = str | bytes | int | float


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
    """One pool of connections. Scripts are loaded when Redis does not know them (any more)."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        address, options = _split(url)
        self.prefix = options.pop("prefix", DEFAULT_PREFIX)
        if not self.prefix or set(self.prefix) & set("{} \n"):
            raise InvalidArgument(
                f"the prefix {self.prefix!r} cannot be used: choose one without braces and spaces"
            )
        if options:
            raise InvalidArgument(
                f"{', '.join(sorted(options))} in the url is not understood: there is prefix"
            )
        self._timeout_seconds = timeout_seconds
        try:
            self.redis: Redis = Redis.from_url(
                address,
                protocol=2,
                # None of the driver's: with one it makes a task for each command, which may also
                # take the cancellation of its caller for its own.
                socket_timeout=None,
                socket_connect_timeout=timeout_seconds,
                # A publish must not be sent twice by itself; who asked may do so.
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as exc:
            # Without the url: it may hold a password.
            raise InvalidArgument(f"the store's url is not one of Redis: {exc}") from exc
        self.round_trips = 0

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Redis]:
        """For a few commands that are no script."""
        with translated():
            async with asyncio.timeout(self._timeout_seconds):
                yield self.redis

    async def run(self, name: str, key: str, *arguments: Argument) -> Any:
        """One script, which is one atomic step."""
        found = script(name)
        with translated():
            async with asyncio.timeout(self._timeout_seconds):
                try:
                    return await self._evaluate(found, key, arguments)
                except failures.NoScriptError:
                    # Redis was restarted, or another one has taken over.
                    await self.redis.script_load(found.text)
                    return await self._evaluate(found, key, arguments)

    async def _evaluate(self, found: Script, key: str, arguments: Sequence[Argument]) -> Any:
        self.round_trips += 1
        return await self.redis.execute_command(  # type: ignore[no-untyped-call]
            "EVALSHA", found.digest, 1, key, *arguments
        )

    async def durability(self) -> Durability:
        """What Redis says it does; what it does not say is not promised."""
        async with self.asking() as redis:
            try:
                found = await redis.config_get("append*")
            except failures.ResponseError:
                return "memory"  # some who rent Redis out do not let one ask
        is_synced = found.get("appendonly") == "yes" and found.get("appendfsync") == "always"
        return "fsync" if is_synced else "memory"

    async def close(self) -> None:
        with translated():
            await self.redis.aclose()


def _split(url: str) -> tuple[str, dict[str, str]]:
    """The url as the driver takes it, and the options that are ours."""
    address, _, query = url.partition("?")
    for ours, drivers in _SCHEMES.items():
        if address.startswith(ours):
            address = drivers + address.removeprefix(ours)
    options = dict(parse_qsl(query, keep_blank_values=True))
    theirs = {name: options.pop(name) for name in list(options) if name in _DRIVERS_OPTIONS}
    return f"{address}?{urlencode(theirs)}" if theirs else address, options


_SCHEMES = {
    "valkey://": "redis://",
    "valkeys://": "rediss://",
}
# Of redis.from_url, what may be needed to reach a server.
_DRIVERS_OPTIONS = {"db", "ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}

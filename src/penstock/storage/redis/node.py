"""One Redis: sending it commands, and tracking whether it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis import exceptions as failures
from redis.asyncio import Redis

from penstock.errors import StoreUnavailable

__all__ = ["Node", "Settings"]

Settings = Mapping[str, str]
"""By name."""
_SETTINGS = ("CONFIG GET", "append*", "maxmemory-policy")

# How long WAIT waits for replicas.
_REPLICAS_SECONDS = 2.0
# A silent node is pinged repeatedly, each time with this timeout.
_PROBE_SECONDS = 1.0

_RESET = "the connection was reset"

# It is away, or no longer the master.
_FAILURES = (failures.ConnectionError, failures.ReadOnlyError, OSError)
# What closing may raise if data is still to be sent. The connection is closed nevertheless.
_CLOSED = (failures.RedisError, OSError, RuntimeError)


class _Client:
    """The driver's connections to a Redis, and how many use them."""

    __slots__ = ("redis", "users")

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.users = 0

    async def close(self) -> None:
        with suppress(*_CLOSED):
            await self.redis.aclose()


class Node:
    """Connects with the first command; further connections are made as needed.

    A Redis that lets a command reach its deadline is only pinged from then on: until it answers,
    commands are refused at once, without holding a connection. After any failure, the existing
    connections are abandoned, so that the next command goes wherever a new connection leads. They
    are closed when nobody uses them any more: a connection that is closed in use is opened again
    by the driver, and then nobody closes it.
    """

    def __init__(
        self, connect: Callable[[], Redis], timeout_seconds: float, name: str = "it"
    ) -> None:
        """``name`` is used in error messages."""
        self._connect = connect
        self._silent = f"{name} does not answer"
        self._clients: set[_Client] = set()  # those not known to be closed
        self._client = self._open()
        # No command lasts longer.
        self._timeout_seconds = timeout_seconds
        self._is_used = False
        self._probe: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Timeout] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self.answers = False
        """Whether the last command succeeded."""
        self.problem: str | None = None
        """Why the last command failed; None if it succeeded, or before the first one."""

    @property
    def is_silent(self) -> bool:
        return self._probe is not None

    async def send(self, command: Sequence[Any], deadline: float, replicas: int = 0) -> Any:
        """Run a command. Returns the answer once ``replicas`` replicas have what was written.

        ``deadline`` is in the event loop's time. Raises the driver's errors, and
        `StoreUnavailable` if Redis has executed it but too few replicas have it.
        """
        if self._probe is not None:
            raise failures.TimeoutError(self._silent)
        timeout = asyncio.timeout_at(deadline)
        self._waiting.add(timeout)
        client = self._client
        try:
            async with timeout:
                with self._used(client) as redis:
                    if replicas:
                        answer = await _send_replicated(redis, command, replicas)
                    else:
                        answer = await redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except (TimeoutError, failures.TimeoutError) as exc:
            self._leave(client, self._silent, is_silent=True)
            raise failures.TimeoutError(self._silent) from exc
        except _FAILURES as exc:
            self._leave(client, str(exc) or self._silent)
            raise
        except RuntimeError as exc:
            # uvloop raises this for a connection that was reset before the write.
            self._leave(client, _RESET)
            raise failures.ConnectionError(_RESET) from exc
        except (StoreUnavailable, failures.ClusterDownError) as exc:
            self.fail(str(exc))
            raise
        except failures.ResponseError:
            self._succeed()
            raise
        finally:
            self._waiting.discard(timeout)
        self._succeed()
        return answer

    def fail(self, why: str) -> None:
        """Note that it answers, but does not work."""
        self.answers, self.problem = False, why

    def _succeed(self) -> None:
        self.answers = self._is_used = True
        self.problem = None

    def waiting(self, seconds: float) -> list[asyncio.Timeout]:
        """The commands that have waited for this long."""
        until = asyncio.get_running_loop().time() + self._timeout_seconds - seconds
        waiting = [one for one in self._waiting if not one.expired()]
        return [one for one in waiting if (one.when() or until) < until]

    def give_up(self, seconds: float) -> None:
        """Time out the commands that have waited for this long."""
        for one in self.waiting(seconds):
            one.reschedule(0)

    async def settings(self, deadline: float) -> Settings:
        """The settings that matter here; empty if it does not tell. Raises like `send`."""
        try:
            found: Settings = await self.send(_SETTINGS, deadline)
        except failures.ClusterDownError:
            raise
        except failures.ResponseError:
            return {}  # some hosted Redis services do not allow CONFIG GET
        return found

    async def ask(self, *command: Any, seconds: float) -> Any:
        """Run a command even while it is silent. Raises the driver's errors, and `TimeoutError`."""
        async with asyncio.timeout(seconds):
            with self._used(self._client) as redis:
                return await redis.execute_command(*command)  # type: ignore[no-untyped-call]

    def _open(self) -> _Client:
        client = _Client(self._connect())
        self._clients.add(client)
        return client

    @contextmanager
    def _used(self, client: _Client) -> Iterator[Redis]:
        client.users += 1
        try:
            yield client.redis
        finally:
            client.users -= 1
            self._close_unless_needed(client)

    def _leave(self, client: _Client, why: str, *, is_silent: bool = False) -> None:
        """Use new connections from now on. Answers that others wait for may still come.

        Does nothing if they were abandoned before: their failure says nothing about newer ones.
        """
        if client is not self._client:
            return
        self.fail(why)
        if is_silent and self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._until_it_answers())
            self._probe.add_done_callback(self._end_probe)
        if self._is_used:
            self._client, self._is_used = self._open(), False
            self._close_unless_needed(client)

    def _close_unless_needed(self, client: _Client) -> None:
        if client is not self._client and not client.users:
            task = asyncio.get_running_loop().create_task(self._close(client))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, client: _Client) -> None:
        await client.close()
        self._clients.discard(client)

    def _end_probe(self, _: asyncio.Task[None]) -> None:
        self._probe = None

    async def _until_it_answers(self) -> None:
        while True:
            client = self._open()
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    with self._used(client) as redis:
                        await redis.ping()
                return
            except (TimeoutError, failures.TimeoutError):
                pass
            except (failures.RedisError, OSError, RuntimeError):
                return  # the next command will fail at once, with the reason

    async def close(self) -> None:
        """No command may be under way."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        for client in list(self._clients):
            await self._close(client)


async def _send_replicated(redis: Redis, command: Sequence[Any], replicas: int) -> Any:
    """Send the command and WAIT on the same connection, as WAIT requires. Nothing is retried."""
    pipeline: Any = redis.pipeline(transaction=False)
    pipeline.execute_command(*command)
    pipeline.execute_command("WAIT", replicas, round(_REPLICAS_SECONDS * 1000))
    answer, reached = await pipeline.execute(raise_on_error=False)
    for one in (answer, reached):
        if isinstance(one, Exception):
            raise one
    if reached < replicas:
        raise StoreUnavailable(
            f"Redis has done it, but {reached} of its replicas have it, and {replicas} must: "
            "try again shortly"
        )
    return answer

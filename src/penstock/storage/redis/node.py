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
"""The values of Redis's settings by name."""
_GET_SETTINGS = ("CONFIG GET", "append*", "maxmemory-policy")

# How long WAIT waits for replicas.
_REPLICAS_SECONDS = 2.0
# A silent node is pinged repeatedly, each time with this timeout.
_PROBE_SECONDS = 1.0

_RESET = "the connection was reset"

# Redis is away, or no longer the master.
_FAILURES = (failures.ConnectionError, failures.ReadOnlyError, OSError)
# Closing may raise these if data is still to be sent. The connection is closed nevertheless.
_CLOSE_ERRORS = (failures.RedisError, OSError, RuntimeError)


class _Client:
    """A connection pool of redis-py, and how many commands use it now."""

    __slots__ = ("redis", "users")

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.users = 0

    async def close(self) -> None:
        with suppress(*_CLOSE_ERRORS):
            await self.redis.aclose()


class Node:
    """Connects with the first command; further connections are made as needed.

    A Redis is *silent* once a command has reached its deadline. It is then only pinged: until it
    answers, commands are refused at once, without holding a connection. After any failure, the
    existing connections are abandoned, since a new one may lead to another Redis. They are closed
    when no command uses them any more: redis-py would reopen a connection that is closed in use,
    and nobody would close that.
    """

    def __init__(
        self, connect: Callable[[], Redis], timeout_seconds: float, name: str = "it"
    ) -> None:
        """``name`` is used in error messages."""
        self._connect = connect
        self._no_answer = f"{name} does not answer"
        self._clients: set[_Client] = set()  # all that are not closed yet
        self._client = self._open()
        self._timeout_seconds = timeout_seconds  # of every command
        self._has_client_worked = False
        self._probe: asyncio.Task[None] | None = None
        self._timeouts: set[asyncio.Timeout] = set()  # of the commands under way
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
            raise failures.TimeoutError(self._no_answer)
        timeout = asyncio.timeout_at(deadline)
        self._timeouts.add(timeout)
        client = self._client
        try:
            async with timeout:
                with self._in_use(client) as redis:
                    if replicas:
                        answer = await _send_replicated(redis, command, replicas)
                    else:
                        answer = await redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except (TimeoutError, failures.TimeoutError) as exc:
            self._abandon(client, self._no_answer, is_silent=True)
            raise failures.TimeoutError(self._no_answer) from exc
        except _FAILURES as exc:
            self._abandon(client, str(exc) or self._no_answer)
            raise
        except RuntimeError as exc:
            # uvloop raises this for a connection that was reset before the write.
            self._abandon(client, _RESET)
            raise failures.ConnectionError(_RESET) from exc
        except (StoreUnavailable, failures.ClusterDownError) as exc:
            self.mark_failed(str(exc))
            raise
        except failures.ResponseError:
            self._mark_working()
            raise
        finally:
            self._timeouts.discard(timeout)
        self._mark_working()
        return answer

    def mark_failed(self, why: str) -> None:
        """Note that commands do not succeed, although it may answer."""
        self.answers, self.problem = False, why

    def _mark_working(self) -> None:
        self.answers = self._has_client_worked = True
        self.problem = None

    def slow_commands(self, seconds: float) -> list[asyncio.Timeout]:
        """The timeouts of commands that have waited for an answer for this long."""
        until = asyncio.get_running_loop().time() + self._timeout_seconds - seconds
        pending = [one for one in self._timeouts if not one.expired()]
        return [one for one in pending if (one.when() or until) < until]

    def abort_slow_commands(self, seconds: float) -> None:
        """Let commands that have waited for this long time out now."""
        for one in self.slow_commands(seconds):
            one.reschedule(0)

    async def settings(self, deadline: float) -> Settings:
        """The settings that matter; empty if they may not be read. Raises like `send`."""
        try:
            found: Settings = await self.send(_GET_SETTINGS, deadline)
        except failures.ClusterDownError:
            raise
        except failures.ResponseError:
            return {}  # some hosted Redis services do not allow CONFIG GET
        return found

    async def ask(self, *command: Any, seconds: float) -> Any:
        """Run a command even while Redis is silent, without noting whether it answers.

        Raises the driver's errors, and `TimeoutError`.
        """
        async with asyncio.timeout(seconds):
            with self._in_use(self._client) as redis:
                return await redis.execute_command(*command)  # type: ignore[no-untyped-call]

    def _open(self) -> _Client:
        client = _Client(self._connect())
        self._clients.add(client)
        return client

    @contextmanager
    def _in_use(self, client: _Client) -> Iterator[Redis]:
        """Keep the client from being closed meanwhile."""
        client.users += 1
        try:
            yield client.redis
        finally:
            client.users -= 1
            self._close_if_unused(client)

    def _abandon(self, client: _Client, why: str, *, is_silent: bool = False) -> None:
        """Use new connections from now on. Commands under way may still get their answers.

        Does nothing if the client was abandoned before: that says nothing about its successor.
        """
        if client is not self._client:
            return
        self.mark_failed(why)
        if is_silent and self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._ping_until_it_answers())
            self._probe.add_done_callback(self._end_probe)
        if self._has_client_worked:
            self._client, self._has_client_worked = self._open(), False
            self._close_if_unused(client)

    def _close_if_unused(self, client: _Client) -> None:
        if client is not self._client and not client.users:
            task = asyncio.get_running_loop().create_task(self._close(client))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, client: _Client) -> None:
        await client.close()
        self._clients.discard(client)

    def _end_probe(self, _: asyncio.Task[None]) -> None:
        self._probe = None

    async def _ping_until_it_answers(self) -> None:
        while True:
            client = self._open()
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    with self._in_use(client) as redis:
                        await redis.ping()
                return
            except (TimeoutError, failures.TimeoutError):
                pass
            except (failures.RedisError, OSError, RuntimeError):
                return  # the next command will fail at once, with the reason

    async def close(self) -> None:
        """Close all connections. No command may be under way."""
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

"""One Redis: what it is asked, and whether it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions as failures
from redis.asyncio import Redis

from penstock.errors import StoreUnavailable

__all__ = ["Node", "Settings"]

Settings = Mapping[str, str]
"""By name."""
_SETTINGS = ("CONFIG GET", "append*", "maxmemory-policy")

# Replicas that do not answer for this long do not have it.
_REPLICAS_SECONDS = 2.0
# One that was silent is asked again and again, each time for this long.
_PROBE_SECONDS = 1.0
_TAKE_SECONDS = 0.1

_RESET = "the connection was reset"

# It is away, or no longer the one to be asked.
_FAILURES = (failures.ConnectionError, failures.ReadOnlyError, OSError)


# What closing may raise where nobody takes what is left to be sent. It is closed all the same.
_CLOSED = (failures.RedisError, OSError, RuntimeError)


class Node:
    """Nobody is asked before the first command; connections are made as they are needed.

    A Redis that lets a command wait until its deadline is asked nothing more but whether it is
    there: until it says so, whoever wants something of it is refused at once, and holds no
    connection. Whatever goes wrong, the connections that there are by then are left, so that the
    next command goes where a new one leads to.
    """

    def __init__(
        self, connect: Callable[[], Redis], timeout_seconds: float, name: str = "it"
    ) -> None:
        """``name`` is what it is called where it does not answer."""
        self._connect = connect
        self._silent = f"{name} does not answer"
        self._redis = connect()
        # No command lasts longer.
        self._timeout_seconds = timeout_seconds
        self._is_used = False
        self._probe: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Timeout] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self.answers = False
        """Whether it did what it was asked the last time."""
        self.problem: str | None = None
        """Why it did not, the last time; None also before it was asked."""

    @property
    def is_silent(self) -> bool:
        return self._probe is not None

    async def send(self, command: Sequence[Any], deadline: float, replicas: int = 0) -> Any:
        """The answer, once so many replicas have what was written.

        ``deadline`` is in the time of the event loop. Raises the driver's errors, and
        `StoreUnavailable` if Redis has done it but too few replicas have it.
        """
        if self._probe is not None:
            raise failures.TimeoutError(self._silent)
        redis = self._redis
        timeout = asyncio.timeout_at(deadline)
        self._waiting.add(timeout)
        try:
            async with timeout:
                if replicas:
                    answer = await _send_replicated(redis, command, replicas)
                else:
                    answer = await redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except (TimeoutError, failures.TimeoutError) as exc:
            self._leave(redis, self._silent, is_silent=True)
            raise failures.TimeoutError(self._silent) from exc
        except _FAILURES as exc:
            self._leave(redis, str(exc) or self._silent)
            raise
        except RuntimeError as exc:
            # What uvloop says of a connection that was reset before it is written to.
            self._leave(redis, _RESET)
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
        """It answers, but does not do what it is asked."""
        self.answers, self.problem = False, why

    def _succeed(self) -> None:
        self.answers = self._is_used = True
        self.problem = None

    def waiting(self, seconds: float) -> list[asyncio.Timeout]:
        """The commands that have waited for so long."""
        until = asyncio.get_running_loop().time() + self._timeout_seconds - seconds
        waiting = [one for one in self._waiting if not one.expired()]
        return [one for one in waiting if (one.when() or until) < until]

    def give_up(self, seconds: float) -> None:
        """What has waited for so long waits no longer."""
        for one in self.waiting(seconds):
            one.reschedule(0)

    async def settings(self, deadline: float) -> Settings:
        """Those that matter here; none if it does not tell. Raises as `send` does."""
        try:
            found: Settings = await self.send(_SETTINGS, deadline)
        except failures.ClusterDownError:
            raise
        except failures.ResponseError:
            return {}  # some who rent Redis out do not let one ask
        return found

    async def ask(self, *command: Any, seconds: float) -> Any:
        """Also while it is silent. Raises the driver's errors, and `TimeoutError`."""
        async with asyncio.timeout(seconds):
            return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]

    def _leave(self, redis: Redis, why: str, *, is_silent: bool = False) -> None:
        """Connect anew from now on. What others are waiting for may still come.

        Unless it was left before: then it says nothing about where new connections lead to.
        """
        if redis is not self._redis:
            return
        self.fail(why)
        if is_silent and self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._until_it_answers())
            self._probe.add_done_callback(self._end_probe)
        if self._is_used:
            self._redis, self._is_used = self._connect(), False
            task = asyncio.get_running_loop().create_task(self._close_later(redis))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _close_later(self, redis: Redis) -> None:
        """When nobody uses it any more: closing a connection in use confuses the driver."""
        try:
            # Who has just been about to take one has done so by then.
            await asyncio.sleep(_TAKE_SECONDS)
            with suppress(*_CLOSED):
                await redis.connection_pool.disconnect(inuse_connections=False)
            await asyncio.sleep(self._timeout_seconds)
        finally:
            await _close(redis)

    def _end_probe(self, _: asyncio.Task[None]) -> None:
        self._probe = None

    async def _until_it_answers(self) -> None:
        while True:
            redis = self._connect()
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    await redis.ping()
                return
            except (TimeoutError, failures.TimeoutError):
                pass
            except (failures.RedisError, OSError, RuntimeError):
                return  # it says why to whoever asks next, and at once
            finally:
                await _close(redis)

    async def close(self) -> None:
        tasks = [*self._leaving, *([self._probe] if self._probe else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _close(self._redis)


async def _close(redis: Redis) -> None:
    with suppress(*_CLOSED):
        await redis.aclose()


async def _send_replicated(redis: Redis, command: Sequence[Any], replicas: int) -> Any:
    """On one connection, whose writes are what is waited for; nothing is sent a second time."""
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

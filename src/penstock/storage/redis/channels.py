"""News between servers, by Pub/Sub: a long poll costs nothing until there is something for it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from penstock.errors import StorageClosed, StoreUnavailable
from penstock.storage.redis.driver import Driver

__all__ = ["Channels", "Waiter"]

logger = logging.getLogger(__name__)

# A connection that was quiet for this long is pinged, and dropped if it does not answer.
_QUIET_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
# How often to look for channels that nobody needs any more.
_CARE_SECONDS = 15.0
_RETRY_SECONDS = 0.2
_SUBSCRIBE_SECONDS = 5.0


class Waiter:
    """Waits for news of one subscription."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_woken(self) -> bool:
        return self.future.done() and not self.future.cancelled()

    def wake(self) -> bool:
        """False if it was no longer waiting."""
        if self.future.done():
            return False
        self.future.set_result(None)
        return True


# Receivers wait in a line per subscription; watchers have a line of their own.
_WATCHERS = None


class _Channel:
    """The news of one queue, and those who wait for it by subscription."""

    __slots__ = ("is_idle", "lines", "subscribed")

    def __init__(self) -> None:
        self.lines: dict[str | None, deque[Waiter]] = {}
        self.subscribed = asyncio.Event()
        self.is_idle = False

    def wake(self, count: int | None) -> None:
        """Wake the first ``count`` waiters of every subscription, or all; and all watchers."""
        for subscription, line in self.lines.items():
            left = len(line) if count is None or subscription is _WATCHERS else count
            while line and left > 0:
                left -= line.popleft().wake()


class Channels:
    """One listening connection, which is opened when somebody waits for the first time."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._channels: dict[str, _Channel] = {}
        self._pubsub: PubSub | None = None
        self._listener: asyncio.Task[None] | None = None
        self._additions: set[asyncio.Task[None]] = set()
        self._is_cut_off = False
        self._is_closed = False

    @asynccontextmanager
    async def waiter(self, name: str, subscription: str | None) -> AsyncIterator[Waiter]:
        """Wait for the news of a channel. Nothing that comes after entering this is missed.

        Without a subscription, the waiter sees all news and takes none from others. Raises
        `StorageClosed`: a listener that starts now would never end.
        """
        if self._is_closed:
            raise StorageClosed("the store was closed: open it again")
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _Channel()
            # In a task of its own, since this caller may be cancelled.
            self._subscribe(name)
        channel.is_idle = False
        waiter = Waiter()
        line = channel.lines.setdefault(subscription, deque())
        line.append(waiter)
        try:
            await self._subscribed(channel)
            yield waiter
        except BaseException:
            if waiter.is_woken and line:
                line.popleft().wake()  # it was woken but is cancelled: wake another one instead
            raise
        finally:
            with suppress(ValueError):
                line.remove(waiter)
            if not line and channel.lines.get(subscription) is line:
                del channel.lines[subscription]

    async def _subscribed(self, channel: _Channel) -> None:
        if channel.subscribed.is_set():
            return
        try:
            async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                await channel.subscribed.wait()
        except TimeoutError as exc:
            raise StoreUnavailable("Redis is away: try again shortly") from exc

    def _subscribe(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        if self._listener is None:
            self._listener = loop.create_task(self._listen_forever())
        elif self._pubsub is not None:
            task = loop.create_task(self._add(self._pubsub, name))
            self._additions.add(task)
            task.add_done_callback(self._additions.discard)

    async def _add(self, pubsub: PubSub, name: str) -> None:
        """If it fails, the listener notices, and subscribes to everything again."""
        with suppress(RedisError, OSError, RuntimeError):
            await pubsub.subscribe(name)

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, RuntimeError) as exc:
                if not self._is_cut_off:
                    logger.warning(
                        "news from Redis are cut off: %s", str(exc) or "it does not answer"
                    )
                self._is_cut_off = True
            except Exception:
                logger.exception("news from Redis are cut off")
            # News may have been lost in the meantime, so everybody checks.
            for channel in self._channels.values():
                channel.subscribed.clear()
            self.wake_all()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _listen(self) -> None:
        async with self._driver.listening() as (pubsub, are_there):
            try:
                await self._begin(pubsub)
                await self._hear_all(pubsub, are_there)
            finally:
                # Subscribing after the end would connect it again, and nobody would close that.
                self._pubsub = None
                await _cancel(self._additions)

    async def _hear_all(self, pubsub: PubSub, are_there: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        care_at = loop.time() + _CARE_SECONDS
        is_asked = False
        while True:
            seconds = _ANSWER_SECONDS if is_asked else _QUIET_SECONDS
            message = await pubsub.get_message(timeout=seconds)
            if message is not None:
                is_asked = False
                self._hear(message)
            elif is_asked:
                raise TimeoutError("it does not answer")
            elif not are_there():
                raise ConnectionError("they come elsewhere now")
            else:
                await pubsub.ping()
                is_asked = True
            if loop.time() >= care_at:
                care_at = loop.time() + _CARE_SECONDS
                await self._take_care(pubsub)

    async def _begin(self, pubsub: PubSub) -> None:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await pubsub.connect()  # type: ignore[no-untyped-call]
            self._pubsub = pubsub
            self._is_cut_off = False
            if self._channels:
                await pubsub.subscribe(*self._channels)

    def _hear(self, message: dict[str, Any]) -> None:
        """Handle a message. A pong has no channel."""
        if message["channel"] is None:
            return
        channel = self._channels.get(message["channel"].decode())
        if channel is None:
            return
        if message["type"] == "subscribe":
            channel.subscribed.set()
        elif message["type"] == "message":
            data = message["data"]
            channel.wake(None if data == b"*" else int(data))

    async def _take_care(self, pubsub: PubSub) -> None:
        idle = [name for name, channel in self._channels.items() if channel.is_idle]
        for channel in self._channels.values():
            channel.is_idle = not channel.lines
        for name in idle:
            if self._channels[name].is_idle:  # nobody has come while another was unsubscribed
                del self._channels[name]
                await pubsub.unsubscribe(name)

    def wake_all(self) -> None:
        for channel in self._channels.values():
            channel.wake(None)

    async def close(self) -> None:
        self._is_closed = True
        if self._listener is not None:
            await _cancel([self._listener])
        for channel in self._channels.values():
            channel.subscribed.set()  # those who wait for it find the store closed
        self.wake_all()


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

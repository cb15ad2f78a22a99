"""Steps on a queue: one script each, with the version of the definitions that the server knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.clock import Clock
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX, is_name
from penstock.errors import PenstockError, QueueNotFound, StorageClosed, StoreUnavailable
from penstock.storage.redis.connection import Argument, Connection
from penstock.storage.redis.definitions import QueueDefinition, parse_definition
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.messages import MICROSECONDS

__all__ = ["Arguments", "Steps", "on"]

Arguments = Callable[[QueueDefinition], Sequence[Argument]]


def on(subscription: str, *more: Argument) -> Arguments:
    """The arguments of a step on a subscription that must exist."""

    def arguments(definition: QueueDefinition) -> Sequence[Argument]:
        definition.reader(subscription)
        return [subscription, *more]

    return arguments


class Steps:
    """Runs scripts, and caches the definitions of queues.

    Before any step on an events queue, `tell_events` publishes what is pending, so that readers
    find everything that has happened.

    Time is Redis's own, so it does not matter if the servers' clocks disagree. Only tests pass a
    clock.
    """

    def __init__(self, connection: Connection, clock: Clock | None) -> None:
        self.connection = connection
        self.keys = Keys(connection.prefix)
        self.is_closed = False
        self.problem: str | None = None
        self.tell_events: Callable[[str], Awaitable[None]] = _nothing_to_tell
        self._clock = clock
        self._known: dict[str, QueueDefinition] = {}
        self._under_way = 0
        self._nothing = asyncio.Event()
        self._nothing.set()

    @property
    def time(self) -> Argument:
        """The time argument of a script; empty for Redis's own."""
        return "" if self._clock is None else self._clock.now_ns() // MICROSECONDS

    def check_open(self) -> None:
        if self.is_closed:
            raise StorageClosed("the store was closed: open it again")

    async def run(self, name: str, key: str, *arguments: Argument) -> Any:
        """Run any script."""
        with self._step():
            return await self.connection.run(name, key, *arguments)

    async def prepare(self, name: str, key: str, *arguments: Argument) -> None:
        """Run a command that a script will follow. It becomes as durable as the script."""
        with self._step():
            await self.connection.prepare(name, key, *arguments)

    async def command(self, name: str, key: str, *arguments: Argument) -> Any:
        """Run a plain command."""
        with self._step():
            return await self.connection.command(name, key, *arguments)

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Track a step, so that the store is not closed before it has ended."""
        self.check_open()
        self._under_way += 1
        self._nothing.clear()
        try:
            yield
        except StoreUnavailable as exc:
            if not self.connection.driver.is_partly_available:
                self.problem = str(exc)
            raise
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._nothing.set()
        self.problem = None

    async def finish(self) -> None:
        """Refuse new steps, and wait for those under way."""
        self.is_closed = True
        await self._nothing.wait()

    async def definition(self, queue: str) -> QueueDefinition:
        """The cached definition, however old, or a new one. Raises `QueueNotFound`."""
        return self._known.get(queue) or await self.learn(queue)

    def names_of_known(self) -> set[str]:
        """The cached queues, without dead-letter queues."""
        return {name for name, one in self._known.items() if one.source is None}

    def note(self, definition: QueueDefinition) -> None:
        """Cache what a step of this server has made of the definition that it was taken with."""
        self._known[definition.name] = definition

    def keep_only(self, listed: Collection[str]) -> None:
        """Drop queues from the cache that are not in the list of queues: others deleted them."""
        for name, one in list(self._known.items()):
            if (one.source or name) not in listed:
                del self._known[name]

    def forget(self, queue: str) -> None:
        """Drop a deleted queue from the cache, with its dead letters and events."""
        for name in (queue, queue + EVENTS_SUFFIX):
            self._known.pop(name, None)
            self._known.pop(name + DEAD_LETTER_SUFFIX, None)

    async def ask(self, name: str, queue: str, *arguments: Argument) -> Any:
        """Run a script whose answer is empty if there is no such queue. Raises `QueueNotFound`."""
        self.check_open()
        answer = None
        if is_name(queue):  # anything else cannot be a queue, and must not get into a key
            answer = await self.run(name, self.keys.queue(queue), *arguments)
        if not answer:
            raise QueueNotFound(f"there is no queue {queue!r}: create it first")
        return answer

    async def learn(self, queue: str) -> QueueDefinition:
        """The current definition, read only if it is not the cached one. Raises `QueueNotFound`."""
        known = self._known.get(queue)
        try:
            answer = await self.ask("describe", queue, known.version if known else "")
        except QueueNotFound:
            self._known.pop(queue, None)
            raise
        if known is None or len(answer) > 1:
            known = self._known[queue] = parse_definition(queue, self.keys.queue(queue), answer)
        return known

    async def learn_or_recall(self, queue: str) -> QueueDefinition | None:
        """The current definition, or the cached one if Redis is away; None if there is no queue.

        Also None if Redis is away and nothing is cached.
        """
        try:
            return await self.learn(queue)
        except QueueNotFound:
            return None
        except StoreUnavailable:
            return self._known.get(queue)

    async def take(
        self, name: str, queue: str, arguments: Arguments, *, time: Argument | None = None
    ) -> tuple[QueueDefinition, Any]:
        """Take a step. Returns the definition that it was taken with, and the script's answer.

        ``arguments`` makes the script's arguments besides the time and the version. If it raises
        with a cached definition, it is called again with the current one.
        """
        definition = self._known.get(queue)
        while True:
            is_fresh = definition is None
            if definition is None:
                definition = await self.learn(queue)
            if definition.observed and name != "publish":
                await self.tell_events(queue)
            try:
                prepared = arguments(definition)
            except PenstockError:
                if is_fresh:
                    raise
                definition = None
                continue
            answer = await self.run(
                name,
                definition.key,
                self.time if time is None else time,
                definition.version,
                *prepared,
            )
            if answer[0] not in (b"stale", b"gone"):
                return definition, answer
            definition = None


async def _nothing_to_tell(queue: str) -> None:
    """The default, until a store sets another."""

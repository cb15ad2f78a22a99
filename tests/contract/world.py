"""A store under contract, with its clock in the hands of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from penstock.broker import Broker
from penstock.core.message import Delivery, Message
from penstock.core.stats import SubscriptionStats
from penstock.errors import PenstockError
from penstock.storage import base
from tests.contract.backends import Backend, TickingStore
from tests.contract.clock import ManualClock

__all__ = ["World", "bodies", "indexes", "receipts", "unsettled"]

QUEUE = "jobs"


def bodies(messages: Sequence[Message]) -> list[bytes]:
    return [message.body for message in messages]


def indexes(messages: Sequence[Message]) -> list[int]:
    return [message.index for message in messages]


def receipts(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.receipt for delivery in deliveries]


def unsettled(stats: SubscriptionStats) -> int:
    return stats.ready + stats.in_flight + stats.delayed + stats.parked + stats.held


class World:
    """Use `broker` as a user would. After every call the books of all queues must balance."""

    def __init__(self, backend: Backend, directory: Path, clock: ManualClock) -> None:
        self.backend = backend
        self.clock = clock
        self._directory = directory
        self._rng = Random(1)  # goes on over restarts
        self._store: TickingStore | None = None
        self._fresh_ns: int | None = None  # when it was started, while nothing was done since
        self._books = _Books()
        self._watch: base.LetterWatch | None = None
        self.broker = Broker(_CheckedStore(self))

    @property
    def store(self) -> TickingStore:
        """Whoever takes it may change what is in it."""
        assert self._store is not None
        self._fresh_ns = None
        return self._store

    async def open(self) -> None:
        self._store = await self.backend.open(self._directory, self.clock, self._rng)

    async def restart(self) -> None:
        self._store = await self.backend.restart(self.store, self._directory, self.clock, self._rng)
        if self._watch is not None:
            self._store.watch_letters(self._watch)
        # Two servers over one store take turns with every call.
        self._fresh_ns = self.clock.now_ns() if self.backend.has_a_log else None

    def watch_letters(self, watch: base.LetterWatch) -> None:
        """Also after a restart."""
        self._watch = watch
        self.store.watch_letters(watch)

    async def close(self) -> None:
        await self.store.close()

    async def before_call(self) -> None:
        """A store that was started at this very time and has changed nothing is as a new one."""
        if self.backend.restarts_always and self._fresh_ns != self.clock.now_ns():
            await self.restart()

    async def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Of the store, with the books checked after it."""
        if name in ("wait", "close"):
            return await getattr(self.store, name)(*arguments)
        await self.before_call()
        fresh_ns = self._fresh_ns
        try:
            answer = await getattr(self.store, name)(*arguments)
        except PenstockError:
            self._fresh_ns = fresh_ns  # who refuses a call changes nothing
            raise
        if name == "define":
            await self._books.note(self.store, arguments[0])
        await self._books.check(self.store)
        if name in ("stats", "queue_stats"):
            self._fresh_ns = fresh_ns
        return answer

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, then let the store do what is due."""
        self.clock.advance(seconds)
        await self.before_call()
        await self.store.tick()
        await self._books.check(self.store)

    async def stats(self, subscription: str = "default", queue: str = QUEUE) -> SubscriptionStats:
        """Those of one subscription, which are its entry in those of the queue."""
        found = await self.broker.queue_stats(queue)
        alone = await self.broker.queue_stats(queue, only=[subscription])
        every = [one for one in found.subscriptions if one.name == subscription]
        assert alone == replace(found, subscriptions=every)
        return every[0]


class _CheckedStore:
    """Passes every call on to the world's store, and has the books checked after it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        if name == "durability":
            return self._world.store.durability
        return self._checked(name)

    def _checked(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            return await self._world.call(name, arguments)

        return call


class _Books:
    """What went into a subscription is in it or went out by one of the ways that are counted."""

    def __init__(self) -> None:
        self._started: dict[tuple[str, str], int] = {}

    async def note(self, store: TickingStore, change: base.Change) -> None:
        """Keep where subscriptions began; one that was moved is not followed any further."""
        match change:
            case base.CreateQueue():
                self._started[change.queue, "default"] = 0
            case base.CreateSubscription() if change.start in ("earliest", "latest"):
                stats = await store.queue_stats(change.queue)
                is_new = change.start == "latest"
                start = stats.next_index if is_new else stats.first_index
                self._started[change.queue, change.subscription] = start
            case base.DeleteQueue():
                for key in [key for key in self._started if key[0] == change.queue]:
                    del self._started[key]
            case base.Seek() | base.DeleteSubscription() | base.CreateSubscription():
                self._started.pop((change.queue, change.subscription), None)

    async def check(self, store: TickingStore) -> None:
        for queue in (await store.stats()).queues:
            for reader in queue.subscriptions:
                places = (
                    reader.ready,
                    reader.in_flight,
                    reader.delayed,
                    reader.parked,
                    reader.held,
                )
                assert min(places) >= 0, f"{reader.name} has less than nothing: {places}"
                start = self._started.get((queue.name, reader.name))
                if start is not None:
                    out = (
                        reader.acked
                        + reader.filtered
                        + reader.dead_lettered
                        + reader.expired
                        + reader.skipped
                        + reader.purged
                        - reader.replayed
                    )
                    assert queue.next_index - start == out + sum(places), reader

"""Random histories: whoever could receive something, or has news, is awake."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from penstock.broker import Broker
from penstock.core.message import Delivery, NewMessage
from penstock.core.retry import Backoff
from penstock.core.subscription import Subscription
from penstock.errors import PenstockError
from penstock.storage.memory import MemoryStore
from penstock.storage.waiters import is_deliverable
from tests.contract.clock import ManualClock

QUEUE = "q"
NAMES = ("a", "b", "c", "d", "e", "f")
TOPICS = (None, "x", "y", "z")
FILTERS = (None, 'topic == ""', 'topic == "x"', "priority > 0")
LONG = 3600.0


class History:
    """Somebody sleeps on every subscription that has nothing; then something happens."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock, rng=Random(seed))
        self.broker = Broker(self.store)
        self.given: dict[str, list[Delivery]] = {}
        self.sleepers: dict[int, asyncio.Task[int | None]] = {}  # by the reader's id
        self.watchers: dict[int, tuple[int, asyncio.Task[int | None]]] = {}  # what it has seen

    @property
    def readers(self) -> list[Subscription]:
        return list(self.store.machine.subscriptions.values())

    async def begin(self) -> None:
        rng = self.rng
        await self.broker.create_queue(
            QUEUE, fifo=rng.random() < 0.5, max_messages=rng.choice([None, 15])
        )
        for name in NAMES:
            await self.subscribe(name)

    async def subscribe(self, name: str) -> None:
        rng = self.rng
        there = [reader.name for reader in self.readers if reader.queue.name == QUEUE]
        await self.broker.create_subscription(
            QUEUE,
            name,
            filter=rng.choice(FILTERS),
            after=rng.sample(there, rng.randint(0, min(2, len(there)))),
            on_dead_parent=rng.choice(["hold", "cascade", "ignore"]),
            max_in_flight=rng.choice([1, 3]),
            max_deliveries=rng.choice([1, 2]),
            lease_seconds=rng.choice([2.0, 20.0]),
            backoff=Backoff(base_seconds=rng.choice([0.0, 3.0])),
        )

    def sleep(self) -> None:
        store = self.store
        for reader in self.readers:
            names = (reader.queue.name, reader.name)
            if reader.id not in self.sleepers and not is_deliverable(reader):
                waiting = store.wait(*names, LONG)
                self.sleepers[reader.id] = asyncio.create_task(waiting)
            if reader.id not in self.watchers:
                seen = reader.arrivals
                watching = store.wait(*names, LONG, seen)
                self.watchers[reader.id] = (seen, asyncio.create_task(watching))

    async def happen(self) -> None:
        """One thing, and time for those it wakes."""
        what = self.rng.choices(THINGS, WEIGHTS)[0]
        with suppress(PenstockError):
            await what(self)
        await turn()

    def check(self) -> None:
        self.sleepers = {id: task for id, task in self.sleepers.items() if not task.done()}
        self.watchers = {id: two for id, two in self.watchers.items() if not two[1].done()}
        for reader in self.readers:
            reader.mature(self.clock.now_ns())
            if is_deliverable(reader):
                assert reader.id not in self.sleepers, f"{reader.name} could receive"
                seen, _ = self.watchers.get(reader.id, (reader.arrivals, None))
                assert seen == reader.arrivals, f"{reader.name} has news"

    async def end(self) -> None:
        await self.broker.close()
        watching = [task for _, task in self.watchers.values()]
        await asyncio.gather(*self.sleepers.values(), *watching, return_exceptions=True)

    # What may happen.

    def any_name(self) -> str:
        return self.rng.choice(NAMES)

    def some(self, name: str) -> list[Delivery]:
        given = self.given.get(name, [])
        chosen = self.rng.sample(given, min(len(given), self.rng.randint(1, 3)))
        self.given[name] = [delivery for delivery in given if delivery not in chosen]
        return chosen

    async def publish(self) -> None:
        rng = self.rng
        later = self.clock.later
        await self.broker.publish(
            QUEUE,
            [
                NewMessage(
                    body=b"m",
                    topic=rng.choice(TOPICS),
                    priority=rng.choice([0, 0, 5]),
                    group_key=rng.choice([None, "g"]),
                    not_before=later(2) if rng.random() < 0.2 else None,
                    expires_at=later(5) if rng.random() < 0.2 else None,
                )
                for _ in range(rng.randint(1, 3))
            ],
        )

    async def publish_plain(self) -> None:
        await self.broker.publish(QUEUE, [b"m"])

    async def receive(self) -> None:
        name = self.any_name()
        got = await self.broker.receive(QUEUE, subscription=name, limit=self.rng.randint(1, 3))
        self.given.setdefault(name, []).extend(got)

    async def ack(self) -> None:
        name = self.any_name()
        await self.broker.ack(QUEUE, self.some(name), name)

    async def nack(self) -> None:
        name = self.any_name()
        await self.broker.nack(QUEUE, self.some(name), subscription=name)

    async def ack_up_to(self) -> None:
        await self.broker.ack_up_to(QUEUE, self.rng.randint(0, 20), self.any_name())

    async def take_letter(self) -> None:
        letters = f"{QUEUE}-dlq"
        await self.broker.ack(letters, await self.broker.receive(letters))

    async def replay(self) -> None:
        await self.broker.replay(QUEUE)

    async def release(self) -> None:
        name = self.any_name()
        held = await self.broker.held(QUEUE, name, 3)
        await self.broker.release(QUEUE, name, held)

    async def pause(self) -> None:
        await self.broker.pause(QUEUE, self.any_name())

    async def resume(self) -> None:
        for name in NAMES:
            await self.broker.resume(QUEUE, name)

    async def replace(self) -> None:
        name = self.any_name()
        await self.broker.delete_subscription(QUEUE, name)
        self.given.pop(name, None)
        await self.subscribe(name)

    async def seek(self) -> None:
        await self.broker.seek(QUEUE, self.rng.randint(0, 5), self.any_name())

    async def time(self) -> None:
        self.clock.advance(self.rng.choice([1, 4, 30]))
        await self.store.tick()


WEIGHTED: dict[Callable[[History], Awaitable[None]], int] = {
    History.publish: 12,
    History.publish_plain: 2,
    History.receive: 20,
    History.ack: 12,
    History.nack: 8,
    History.ack_up_to: 1,
    History.take_letter: 2,
    History.replay: 1,
    History.release: 2,
    History.pause: 1,
    History.resume: 2,
    History.replace: 1,
    History.seek: 1,
    History.time: 6,
}
THINGS, WEIGHTS = list(WEIGHTED), list(WEIGHTED.values())


async def turn() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_who_could_receive_sleeps_on(seed: int) -> None:
    history = History(seed)
    await history.begin()
    try:
        for _ in range(120):
            # Given somebody who waits wherever there is nothing
            history.sleep()
            await turn()
            # When anything happens
            await history.happen()
            # Then all who could receive have been woken
            history.check()
    finally:
        await history.end()

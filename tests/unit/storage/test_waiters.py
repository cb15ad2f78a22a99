from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from penstock.core import definitions, delivery, publishing, settling
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.events import Event
from penstock.core.limits import NANOSECONDS
from penstock.core.machine import NOWHERE, Machine, Place
from penstock.core.message import NewMessage, to_datetime
from penstock.core.queue import Queue
from penstock.core.subscription import Subscription
from penstock.storage import waiters as waiters_module
from penstock.storage.waiters import Waiters

NOW_NS = 1_000 * NANOSECONDS
LONG = 30.0


class NoJournal:
    def append(self, event: Event) -> Place:
        return NOWHERE


class Scene:
    """A queue, and those who wait on it."""

    def __init__(self) -> None:
        self.machine = Machine(journal=NoJournal(), rng=Random(1))
        self.queue: Queue = definitions.create_queue(self.machine, "q", QueueConfig(), NOW_NS)
        self.waiters = Waiters()

    def reader(self, name: str = "default") -> Subscription:
        return self.queue.subscription(name)

    def subscribe(self, name: str, **settings: Any) -> Subscription:
        config = SubscriptionConfig(**settings)
        start = self.queue.next
        return definitions.create_subscription(self.machine, "q", name, config, start, [], NOW_NS)

    def publish(self, *messages: NewMessage | bytes) -> None:
        publishing.publish(self.machine, "q", publishing.prepare(list(messages)), NOW_NS)
        self.waiters.wake_fed(self.queue, len(messages), NOW_NS)

    async def wait(self, name: str = "default", seconds: float = LONG) -> asyncio.Task[bool]:
        """Somebody who has begun to wait."""
        task = asyncio.create_task(self.waiters.wait(self.reader(name), seconds, NOW_NS))
        await asyncio.sleep(0)
        assert not task.done()
        return task


async def ends(task: asyncio.Task[bool]) -> bool:
    async with asyncio.timeout(5):
        return await task


async def test_one_who_is_woken_but_gives_up_wakes_the_next() -> None:
    scene = Scene()
    first, second = await scene.wait(), await scene.wait()
    # When the first is cancelled in the same turn in which a message wakes it
    scene.publish(b"a")
    first.cancel()
    # Then the second comes for it
    assert await ends(second)
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_one_who_is_woken_as_its_time_is_up_comes_for_the_message() -> None:
    scene = Scene()
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting = await scene.wait(seconds=0.05)
    # When a message comes and its time is up in the same turn, because the loop was kept busy
    loop.call_at(began + 0.04, scene.publish, b"a")
    while loop.time() < began + 0.1:
        pass
    # Then it does not say that there was nothing
    assert await ends(waiting)


async def test_one_whose_time_is_up_without_a_message_says_so() -> None:
    assert not await ends(await Scene().wait(seconds=0.01))


async def test_nobody_is_kept_in_a_line_after_the_wait() -> None:
    scene = Scene()
    timed_out, woken = await scene.wait(seconds=0.01), await scene.wait()
    assert not await ends(timed_out)
    cancelled = await scene.wait()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    scene.publish(b"a")
    assert await ends(woken)
    assert not scene.waiters._lines


@pytest.mark.parametrize("seconds_to_go", [0.0, 0.0001])
async def test_a_clock_that_stands_still_does_not_make_a_wait_spin(seconds_to_go: float) -> None:
    # Given a lease that is about to end, by a clock that was set back and does not move
    scene = Scene()
    scene.publish(b"a")
    assert delivery.receive(scene.machine, "q", "default", 1, 1.0, NOW_NS)
    now_ns = NOW_NS + round((1 - seconds_to_go) * NANOSECONDS)
    # When somebody waits again and again until it has ended
    loop = asyncio.get_running_loop()
    began, rounds = loop.time(), 0
    while loop.time() < began + 0.1:
        assert await scene.waiters.wait(scene.reader(), LONG, now_ns)
        rounds += 1
    # Then each time takes a while
    assert rounds <= 10


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subscriptions that were looked at."""
    names: list[str] = []
    is_deliverable = waiters_module.is_deliverable

    def watched(reader: Subscription) -> bool:
        names.append(reader.name)
        return is_deliverable(reader)

    monkeypatch.setattr(waiters_module, "is_deliverable", watched)
    return names


async def test_a_publish_looks_only_at_those_whose_filter_takes_it(looked: list[str]) -> None:
    # Given long polls on many topics
    scene = Scene()
    names = [f"s{n}" for n in range(20)]
    for name in names:
        scene.subscribe(name, filter=f'topic == "{name}"')
    waiting = {name: await scene.wait(name) for name in names}
    looked.clear()
    # When a message of one topic comes, and then anything else happens
    scene.publish(NewMessage(body=b"a", topic="s7"))
    scene.waiters.wake(scene.queue, NOW_NS)
    # Then nobody else is looked at
    assert set(looked) == {"s7"}
    assert await ends(waiting.pop("s7"))
    assert not any(task.done() for task in waiting.values())
    scene.waiters.wake_all(scene.queue)
    assert all([await ends(task) for task in waiting.values()])


async def test_a_settle_looks_only_at_itself_and_those_that_wait_for_it(looked: list[str]) -> None:
    # Given long polls on subscriptions that have something in flight, or wait for another
    scene = Scene()
    scene.subscribe("first")
    scene.subscribe("after", after=("first",))
    for n in range(20):
        scene.subscribe(f"other{n}")
    scene.publish(b"a")
    names = ["first", "after", *(f"other{n}" for n in range(20))]
    for name in names:
        delivery.receive(scene.machine, "q", name, 1, None, NOW_NS)
    waiting = {name: await scene.wait(name) for name in names}
    looked.clear()
    # When one of them settles
    settling.ack_up_to(scene.machine, "q", "first", 1, NOW_NS)
    scene.waiters.wake_settled(scene.reader("first"), NOW_NS)
    # Then nobody else is looked at
    assert set(looked) <= {"first", "after"}
    assert await ends(waiting.pop("after"))
    assert not any(task.done() for task in waiting.values())
    scene.waiters.wake_all(scene.queue)
    assert all([await ends(task) for task in waiting.values()])


async def test_one_who_waits_learns_of_a_delay_that_ends_sooner_than_it_knew() -> None:
    scene = Scene()
    waiting = await scene.wait()
    scene.publish(NewMessage(body=b"a", not_before=to_datetime(NOW_NS + NANOSECONDS)))
    assert await ends(waiting)

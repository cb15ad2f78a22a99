"""What random histories have shown, told again as short stories."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

import pytest

from penstock.broker import Broker
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import Delivery
from penstock.core.publishing import prepare
from penstock.core.settling import Outcome
from penstock.errors import DiskFull, QueueNotFound, StorageFailed
from penstock.storage import base
from penstock.storage.memory import MemoryStore
from penstock.storage.wal.checkpoint import index_name, numbers_of
from penstock.storage.wal.log import SyncMode
from penstock.storage.wal.store import WalStore
from tests.simulation.clock import VirtualClock
from tests.simulation.committer import InlineCommitter
from tests.simulation.files import SimulatedCrash, crash_at, fail_with
from tests.simulation.host import Host

T = TypeVar("T")


class Story:
    """A store on a simulated host; calls are answered as soon as they can be."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.host = Host(Random(seed), self.clock, InlineCommitter)
        self.store: WalStore

    async def start(self) -> None:
        asyncio.get_running_loop().set_default_executor(self.host.executor)
        self.store = await self.host.start(SyncMode.ALWAYS)

    async def call(self, call: Awaitable[T]) -> T:
        """Raises what the call raised."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                answer.set_result(await call)
            except Exception as exc:
                answer.set_exception(exc)

        await self.host.finish(run(), self.host.commit)
        return answer.result()

    async def create(self, **settings: Any) -> None:
        config = QueueConfig(**settings)
        await self.call(self.store.define(base.CreateQueue(queue="plums", config=config)))

    async def publish(self, *bodies: bytes) -> None:
        await self.call(self.store.publish("plums", prepare(list(bodies))))


async def test_a_lease_that_was_extended_ends_once() -> None:
    # Given a message that may be delivered once, in flight under a lease that was extended
    clock = VirtualClock()
    store = MemoryStore(clock=clock, rng=Random(1))
    await store.define(base.CreateQueue(queue="plums"))
    await store.define(
        base.AlterSubscription(queue="plums", subscription="default", changes={"max_deliveries": 1})
    )
    await store.publish("plums", prepare([b"one"]))
    [delivery] = await store.receive("plums", "default", base.Next(limit=1, lease_seconds=10))
    extend = base.Extend(targets=[delivery.receipt], seconds=20)
    assert await store.settle("plums", "default", [extend]) == [[Outcome.DONE]]

    # When both deadlines have passed
    clock.advance(60)
    await store.tick()

    # Then it is one dead letter
    assert [letter.body for letter in await Broker(store).dead_letters("plums")] == [b"one"]


@pytest.mark.parametrize("operation", range(1, 9))
async def test_a_crash_never_leaves_a_queue_without_its_subscription(operation: int) -> None:
    # Given a machine that stops while a queue is created
    story = Story()
    await story.start()
    files = story.host.files
    files.fault = crash_at(files.operations + operation)
    with suppress(SimulatedCrash):
        await story.create()

    # When it starts again, on any of the disks that the loss of power could leave
    for _ in range(20):
        survivor = Story()
        survivor.host.files = files.crash()
        await survivor.start()

        # Then there is all of the queue or nothing
        try:
            stats = await survivor.call(survivor.store.queue_stats("plums"))
        except QueueNotFound:
            continue
        assert [one.name for one in stats.subscriptions] == ["default"]


async def test_a_checkpoint_that_cannot_be_written_is_a_failure_with_a_name() -> None:
    # Given a disk that cannot write a checkpoint
    story = Story()
    await story.start()
    await story.create()
    story.host.files.fault = fail_with(errno.EIO, kind="create")

    # When one is made, then the error is one of ours, and the store refuses to write
    with pytest.raises(StorageFailed):
        await story.call(story.store.checkpoint())
    with pytest.raises(StorageFailed):
        await story.publish(b"one")


async def test_a_full_disk_does_not_stop_a_store_that_wants_a_checkpoint() -> None:
    # Given a full disk
    story = Story()
    await story.start()
    await story.create()
    await story.publish(b"one")
    story.host.files.fault = fail_with(errno.ENOSPC, kind="create")
    with pytest.raises(DiskFull):
        await story.call(story.store.checkpoint())

    # When there is space again, then everything goes on
    story.host.files.fault = None
    await story.call(story.store.checkpoint())
    await story.publish(b"two")
    messages = await story.call(story.store.read("plums", base.Span(start=0, limit=10)))
    assert [message.body for message in messages] == [b"one", b"two"]


@pytest.mark.parametrize("seed", range(10))
async def test_a_slow_read_finds_a_message_that_is_moved_in_the_meantime(seed: int) -> None:
    # Given old messages of which few are needed, in segments that were left behind
    story = Story(seed)
    await story.start()
    await story.create(retention_messages=0)
    for number in range(60):
        await story.publish(b"%02d" % number + b"." * 400)
    lazy = SubscriptionConfig(lease_seconds=1, max_deliveries=None)
    await story.call(
        story.store.define(
            base.CreateSubscription(
                queue="plums", subscription="lazy", config=lazy, start="earliest"
            )
        )
    )
    for name in ("default", "lazy"):
        deliveries = await story.call(story.store.receive("plums", name, base.Next(limit=100)))
        taken = [d.receipt for d in deliveries if name == "default" or d.index % 14 > 2]
        await story.call(story.store.settle("plums", name, [base.Ack(targets=taken)]))
    story.clock.advance(5)

    # When retention and compaction are at work while a slow read is under way
    read: list[Delivery] = []
    story.host.begin(_read_into(read, story.store.receive("plums", "lazy", base.Next(limit=100))))
    story.host.begin(story.store.tick())
    for _ in range(100):
        await asyncio.sleep(0)
        story.host.commit()
    await story.call(story.store.checkpoint())

    # Then each has its own body, now and later
    assert read
    story.clock.advance(5)
    again = await story.call(story.store.receive("plums", "lazy", base.Next(limit=100)))
    for deliveries in (read, again):
        assert [d.index for d in deliveries] == [i for i in range(60) if i % 14 < 3]
        assert all(d.body.startswith(b"%02d" % d.index) for d in deliveries)


async def _read_into(read: list[Delivery], call: Coroutine[Any, Any, list[Delivery]]) -> None:
    read += await call


async def test_a_damaged_version_of_an_index_does_not_pass_for_a_newer_format() -> None:
    # Given a segment's index in whose version a bit is flipped
    story = Story()
    await story.start()
    await story.create()
    await story.publish(b"one")
    await story.call(story.store.checkpoint())
    files = story.host.files
    [number, *_] = numbers_of(files, "idx")
    await story.host.stop(power=True)
    story.host.files.flip(index_name(number), 9, bit=3)

    # When the store is opened, then the index is made anew
    await story.start()
    messages = await story.call(story.store.read("plums", base.Span(start=0, limit=10)))
    assert [message.body for message in messages] == [b"one"]


@pytest.mark.parametrize("turns", range(1, 12))
async def test_a_store_can_be_closed_while_a_checkpoint_is_made(turns: int) -> None:
    # Given a checkpoint that is under way
    story = Story()
    await story.start()
    await story.create(retention_messages=3)
    bodies = [b"%02d" % number + b"." * 400 for number in range(20)]
    for body in bodies:
        await story.publish(body)
    story.host.begin(story.store.checkpoint())
    for _ in range(turns):
        await asyncio.sleep(0)
        story.host.commit()

    # When the store is closed, then both end well, and everything is there at the next start
    await story.call(story.store.close())
    await story.host.stop(power=True)
    await story.start()
    messages = await story.call(story.store.read("plums", base.Span(start=0, limit=100)))
    assert [message.body for message in messages] == bodies

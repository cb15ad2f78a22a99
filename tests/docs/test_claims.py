"""What the pages claim, where no other suite shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import NewMessage
from penstock.broker import Broker
from penstock.errors import QueueNotFound, UnknownBackend
from penstock.storage.memory import MemoryStore
from penstock.storage.registry import open_store
from tests.contract.clock import ManualClock


async def pending(broker: Broker) -> int:
    [stats] = (await broker.queue_stats("tenant")).subscriptions
    return stats.ready + stats.in_flight + stats.delayed + stats.parked + stats.held


@pytest.mark.parametrize(
    ("url", "durability"), [("memory:", "memory"), ("wal:{}", "fsync"), ("{}", "fsync")]
)
async def test_the_url_alone_chooses_the_backend(url: str, durability: str, tmp_path: Path) -> None:
    async with Broker(await open_store(url.format(tmp_path / "data"))) as broker:
        await broker.create_queue("tenant")
        result = await broker.publish("tenant", [b"a"])
        assert result.durability == durability
        assert [delivery.body for delivery in await broker.receive("tenant")] == [b"a"]


@pytest.mark.parametrize("url", ["kafka:localhost", "wal:"])
async def test_an_unknown_url_is_refused(url: str) -> None:
    with pytest.raises(UnknownBackend):
        await open_store(url)


async def test_a_publish_needs_its_queue() -> None:
    async with Broker(MemoryStore()) as broker:
        with pytest.raises(QueueNotFound):
            await broker.publish("tenant", [b"a"])


async def test_a_message_does_not_change() -> None:
    async with Broker(MemoryStore()) as broker:
        await broker.create_queue("tenant")
        await broker.publish("tenant", [NewMessage(body=b"a")])
        [message] = await broker.read("tenant")
        with pytest.raises(AttributeError):
            message.body = b"b"  # type: ignore[misc]


async def test_what_was_consumed_can_be_read_until_retention_takes_it() -> None:
    # Given a message that was acked
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Broker(store) as broker:
        await broker.create_queue("tenant", retention_seconds=60)
        await broker.publish("tenant", [b"a"])
        await broker.ack("tenant", await broker.receive("tenant"))
        # When some of its time has passed, then it is still there
        clock.advance(59)
        await store.tick()
        assert [message.body for message in await broker.read("tenant")] == [b"a"]
        # When all of it has, then it is gone
        clock.advance(2)
        await store.tick()
        assert await broker.read("tenant") == []


async def test_dead_letters_may_have_a_time_to_live() -> None:
    # Given a dead letter in a queue of letters that live a minute
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Broker(store) as broker:
        await broker.create_queue("tenant")
        await broker.alter_subscription("tenant", "default", max_deliveries=1)
        await broker.publish("tenant", [b"a"])
        clock.advance(3600)
        await broker.nack("tenant", await broker.receive("tenant"))
        await broker.alter_queue("tenant-dlq", message_ttl_seconds=60)
        # When less than that has passed since it failed, then it is there
        clock.advance(59)
        await store.tick()
        assert len(await broker.dead_letters("tenant")) == 1
        # When more has, then it is gone, and counted
        clock.advance(2)
        await store.tick()
        assert await broker.dead_letters("tenant") == []
        [letters] = (await broker.queue_stats("tenant-dlq")).subscriptions
        assert letters.expired == 1


async def test_what_is_published_is_pending_until_it_is_consumed() -> None:
    async with Broker(MemoryStore()) as broker:
        await broker.create_queue("tenant")
        await broker.publish("tenant", [b"%d" % number for number in range(10)])
        assert await pending(broker) == 10
        await broker.ack("tenant", await broker.receive("tenant", limit=10))
        assert await pending(broker) == 0


async def test_what_a_consumer_had_when_it_died_is_delivered_again(tmp_path: Path) -> None:
    # Given a consumer that has five messages and never acks them
    clock = ManualClock()
    path = str(tmp_path / "data")
    async with Broker(await open_store(path, clock=clock)) as broker:
        await broker.create_queue("tenant")
        await broker.publish("tenant", [b"%d" % number for number in range(5)])
        assert len(await broker.receive("tenant", limit=5)) == 5
    # When everything starts anew and the lease is over
    clock.advance(30)
    async with Broker(await open_store(path, clock=clock)) as broker:
        again = await broker.receive("tenant", limit=5)
        # Then they come again, and are known to have been delivered before
        assert [(delivery.index, delivery.deliveries) for delivery in again] == [
            (number, 2) for number in range(5)
        ]

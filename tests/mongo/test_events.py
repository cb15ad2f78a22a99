"""The events of a queue, in the record."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker import Broker
from penstock.core.lifecycle import runs_in
from penstock.errors import QueueNotFound
from penstock.storage.mongo.store import ArchivedStore
from tests.mongo.conftest import Addresses, Open, redis_rolled_back

EVENTS = "orders-events"


async def events_told(broker: Broker) -> list[tuple[str, int, int]]:
    """What the events queue of `orders` tells: event, first index, and one past the last."""
    messages = await broker.read(EVENTS, 0, 100)
    runs = [run for message in messages for run in runs_in(message.body)]
    return [(run.event, run.start, run.stop) for run in runs]


async def test_what_was_told_comes_back_and_what_follows_is_told_behind_it(
    store: ArchivedStore, open_server: Open, addresses: Addresses
) -> None:
    broker = Broker(store)
    await broker.create_queue("orders", events=True)
    await broker.create_subscription(EVENTS, "audit", start="earliest")
    await broker.publish("orders", [b"a", b"b"])
    await broker.ack("orders", await broker.receive("orders", limit=1))
    before = await events_told(broker)
    assert before == [("published", 0, 2), ("delivered", 0, 1), ("acked", 0, 1)]
    (read,) = await broker.receive(EVENTS, subscription="audit", limit=1)
    await broker.ack(EVENTS, [read], subscription="audit")
    # When the record has all of it, and Redis has lost everything
    await store.copy_all()
    await store.close()
    await addresses.wipe_redis()
    again = Broker(await open_server())
    # Then the rows are there, and so is how far their reader is
    assert await events_told(again) == before
    left = await again.receive(EVENTS, subscription="audit", limit=9)
    assert [delivery.index for delivery in left] == [1, 2]
    # And the queue is still observed
    await again.receive("orders", limit=9)
    assert await events_told(again) == [*before, ("delivered", 1, 2)]


async def test_the_record_of_the_events_goes_with_the_queue(
    store: ArchivedStore, open_server: Open, database: Any
) -> None:
    broker = Broker(store)
    await broker.create_queue("orders")
    await broker.alter_queue("orders", events=True)
    await broker.publish("orders", [b"a"])
    await store.copy_all()
    assert await database[EVENTS].count_documents({}) == 1
    await broker.delete_queue("orders")
    assert await database[EVENTS].count_documents({}) == 0
    # And nobody brings it back
    await store.copy_all()
    other = Broker(await open_server())
    with pytest.raises(QueueNotFound):
        await other.read(EVENTS)


async def test_a_redis_that_comes_back_with_old_data_gets_its_events_back(
    store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    broker = Broker(store)
    await broker.create_queue("orders", events=True)
    await broker.publish("orders", [b"a"])
    await store.copy_all()
    async with redis_rolled_back(addresses):
        for _ in range(2):
            await broker.publish("orders", [b"b"])
        await store.copy_all()
        before = await events_told(broker)
    assert len(before) == 3
    # Both when a server starts, and when one that runs tells something else in their place
    other = await open_server()
    assert await events_told(Broker(other)) == before
    async with redis_rolled_back(addresses):
        await broker.receive("orders", limit=1)
        await store.copy_all()
    await Broker(other).receive("orders", limit=2)
    await other.copy_all()
    assert await events_told(Broker(other)) == [*before, ("delivered", 0, 1)]


async def test_an_events_queue_that_no_record_has_is_made_again(
    store: ArchivedStore, addresses: Addresses, open_server: Open, database: Any
) -> None:
    await Broker(store).create_queue("orders", events=True)
    await store.close()
    await database["penstock.queues"].delete_one({"_id": EVENTS})
    await addresses.wipe_redis()
    again = Broker(await open_server())
    await again.publish("orders", [b"a"])
    assert await events_told(again) == [("published", 0, 1)]

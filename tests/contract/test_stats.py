from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import QueueNotFound, SubscriptionNotFound
from tests.contract.world import World, receipts, unsettled


async def test_every_unsettled_message_is_counted_in_one_place(
    world: World, broker: Broker
) -> None:
    # Given a message in every state that there is
    await broker.create_queue("jobs", fifo=True)
    await broker.create_subscription("jobs", "first", filter='topic == "t"')
    await broker.create_subscription("jobs", "all", after=["first"], max_deliveries=1)
    clock = world.clock
    await broker.publish(
        "jobs",
        [
            NewMessage(body=b"held", topic="t"),
            NewMessage(body=b"delayed", not_before=clock.later(50)),
            NewMessage(body=b"head", group_key="g"),
            NewMessage(body=b"parked", group_key="g"),
            b"acked",
            b"dead",
            b"ready",
            NewMessage(body=b"expired", expires_at=clock.later(5)),
        ],
    )
    given = await broker.receive("jobs", subscription="all", limit=3)
    assert [d.body for d in given] == [b"head", b"acked", b"dead"]
    await broker.ack("jobs", [given[1].receipt], "all")
    await broker.nack("jobs", [given[2].receipt], "all")
    await world.pass_time(5)
    # Then each is where it belongs
    stats = await world.stats("all")
    assert (stats.ready, stats.in_flight, stats.delayed, stats.parked, stats.held) == (1,) * 5
    assert (stats.acked, stats.dead_lettered, stats.expired) == (1, 1, 1)
    assert unsettled(stats) == 5
    first = await world.stats("first")
    assert (first.filtered, first.ready) == (7, 1)


async def test_a_queue_counts_its_messages_and_bytes(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"12345", b"678"])
    stats = await broker.queue_stats(queue)
    assert (stats.messages, stats.bytes, stats.first_index, stats.next_index) == (2, 8, 0, 2)
    await broker.ack_up_to(queue, 2)
    assert (await broker.queue_stats(queue)).bytes == 8
    await broker.purge_queue(queue)
    stats = await broker.queue_stats(queue)
    assert (stats.messages, stats.bytes, stats.purged) == (0, 0, 2)


async def test_the_oldest_un_acked_message_has_an_age(
    world: World, broker: Broker, queue: str
) -> None:
    assert (await world.stats()).oldest_unacked_seconds is None
    await broker.publish(queue, [b"a"])
    world.clock.advance(5)
    await broker.publish(queue, [b"b"])
    world.clock.advance(2.5)
    stats = await world.stats()
    assert (stats.oldest_unacked_seconds, stats.lowest_unacked_index) == (7.5, 0)
    await broker.ack_up_to(queue, 1)
    stats = await world.stats()
    assert (stats.oldest_unacked_seconds, stats.lowest_unacked_index) == (2.5, 1)
    await broker.ack_up_to(queue, 2)
    assert (await world.stats()).oldest_unacked_seconds is None


async def test_the_last_delivery_and_the_last_ack_are_known(
    world: World, broker: Broker, queue: str
) -> None:
    stats = await world.stats()
    assert (stats.last_delivery_at, stats.last_ack_at) == (None, None)
    await broker.publish(queue, [b"a"])
    delivered_at = world.clock.now
    given = await broker.receive(queue)
    world.clock.advance(1)
    await broker.ack(queue, receipts(given))
    stats = await world.stats()
    assert (stats.last_delivery_at, stats.last_ack_at) == (delivered_at, world.clock.now)


async def test_deliveries_are_counted(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    await broker.nack(queue, receipts(await broker.receive(queue, limit=2)))
    await broker.receive(queue)
    stats = await world.stats()
    assert (stats.delivered, stats.redelivered, stats.nacked, stats.cursor) == (3, 1, 2, 2)


async def test_letters_are_counted_until_they_are_gone(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.publish(queue, [b"a", b"b", b"c"])
    await broker.nack(queue, receipts(await broker.receive(queue, limit=3)))
    ids = [m.id for m in await broker.dead_letters(queue)]
    assert (await broker.queue_stats(queue)).dead_letters == 3
    await broker.replay(queue, ids[:1])
    await broker.discard(queue, ids[1:2])
    assert (await broker.queue_stats(queue)).dead_letters == 1
    (letters,) = (await broker.queue_stats(f"{queue}-dlq")).subscriptions
    assert (letters.replayed, letters.discarded, letters.ready) == (1, 1, 1)


async def test_one_subscription_is_shown_as_it_is_among_the_others(
    broker: Broker, queue: str
) -> None:
    # Given subscriptions that differ in everything that is counted
    await broker.create_subscription(queue, "some", filter='topic == "t"')
    await broker.create_subscription(queue, "last", after=["some"])
    await broker.publish(queue, [NewMessage(body=b"a", topic="t"), b"b"])
    await broker.ack(queue, receipts(await broker.receive(queue)))
    await broker.receive(queue, subscription="some")
    # Then each is the same by itself
    every = await broker.subscriptions(queue)
    assert [one.name for one in every] == ["default", "last", "some"]
    assert [await broker.subscription_stats(queue, one.name) for one in every] == every
    # And the queue is the same with some of them, in the order of the call, or none
    whole = await broker.queue_stats(queue)
    some = await broker.queue_stats(queue, only=["some", "default"])
    assert some == replace(whole, subscriptions=[every[2], every[0]])
    assert await broker.queue_stats(queue, only=[]) == replace(whole, subscriptions=[])


async def test_what_is_not_there_cannot_be_shown(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "some")
    for name in ("none", "defaul", "default some", "", "default:settled"):
        with pytest.raises(SubscriptionNotFound):
            await broker.subscription_stats(queue, name)
        with pytest.raises(SubscriptionNotFound):
            await broker.queue_stats(queue, only=["default", name])
    for name in ("none", "", f"{queue}:s:default"):
        with pytest.raises(QueueNotFound):
            await broker.subscription_stats(name)
        with pytest.raises(QueueNotFound):
            await broker.queue_stats(name)


async def test_dead_letters_are_in_their_place_on_a_page_of_queues(broker: Broker) -> None:
    # Given a queue whose dead letters come after another queue, by name
    for name in ("jobs-a", "jobs", "jobs-z", "many"):
        await broker.create_queue(name)
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"a"])
    await broker.nack("jobs", receipts(await broker.receive("jobs")))
    # When the queues are listed two at a time
    pages = [await broker.queues(limit=2)]
    while pages[-1]:
        pages.append(await broker.queues(after=pages[-1][-1].name, limit=2))
    # Then each is there once, and is what it is among all
    names = [["jobs", "jobs-a"], ["jobs-dlq", "jobs-z"], ["many"], []]
    assert [[one.name for one in page] for page in pages] == names
    assert [one for page in pages for one in page] == await broker.stats()
    # And the names alone are those without dead letters
    assert await broker.names() == ["jobs", "jobs-a", "jobs-z", "many"]

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import NewMessage
from penstock.errors import (
    InvalidArgument,
    InvalidName,
    QueueExists,
    QueueNotFound,
    ReservedQueue,
    SubscriptionNotFound,
)
from tests.contract.world import World, bodies


async def test_a_new_queue_is_empty_and_has_its_default_subscription(broker: Broker) -> None:
    stats = await broker.create_queue("jobs")
    assert stats == await broker.queue_stats("jobs")
    assert (stats.name, stats.messages, stats.first_index, stats.next_index) == ("jobs", 0, 0, 0)
    assert [subscription.name for subscription in stats.subscriptions] == ["default"]


async def test_a_queue_can_be_made_with_other_settings_of_its_default_subscription(
    world: World, broker: Broker
) -> None:
    wanted = SubscriptionConfig(lease_seconds=5, max_deliveries=1)
    made = await broker.create_queue("jobs", max_messages=3, default=wanted)
    assert (made.config.max_messages, made.subscriptions[0].config) == (3, wanted)
    await broker.publish("jobs", [b"a"])
    await broker.receive("jobs")
    await world.pass_time(6)
    assert await broker.receive("jobs") == []
    assert bodies(await broker.dead_letters("jobs")) == [b"a"]


@pytest.mark.parametrize(
    "default",
    [
        SubscriptionConfig(filter="true"),
        SubscriptionConfig(after=("other",)),
        SubscriptionConfig(callback=Callback(url="http://a.example")),
        SubscriptionConfig(lease_seconds=-1),
        {"lease_seconds": 5},
    ],
)
async def test_a_new_queue_cannot_have_just_any_default_subscription(
    broker: Broker, default: Any
) -> None:
    with pytest.raises(InvalidArgument):
        await broker.create_queue("jobs", default=default)
    with pytest.raises(InvalidArgument):
        await broker.ensure_queue("jobs", default=SubscriptionConfig())
    with pytest.raises(QueueNotFound):
        await broker.queue_stats("jobs")


async def test_a_queue_can_be_made_unless_it_is_there(broker: Broker) -> None:
    made = await broker.ensure_queue("jobs", max_messages=10)
    found = await broker.ensure_queue("jobs", max_messages=10)
    assert (made.is_new, found.is_new) == (True, False)
    assert made.config == found.config == QueueConfig(max_messages=10)
    assert not (await broker.ensure_queue("jobs")).is_new
    with pytest.raises(QueueExists, match="another max_messages"):
        await broker.ensure_queue("jobs", max_messages=11, fifo=False)
    assert not (await broker.ensure_queue("jobs", QueueConfig(max_messages=10))).is_new
    with pytest.raises(QueueExists, match="another max_messages"):
        await broker.ensure_queue("jobs", QueueConfig())
    with pytest.raises(InvalidArgument):
        await broker.ensure_queue("jobs", color="red")
    assert (await broker.queue_stats("jobs")).config == QueueConfig(max_messages=10)


async def test_a_queue_keeps_the_settings_it_was_made_with(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", fifo=True, max_messages=10, retention_messages=5)
    stats = await broker.queue_stats("jobs")
    assert stats.config == QueueConfig(fifo=True, max_messages=10, retention_messages=5)
    assert stats.created_at == world.clock.now


@pytest.mark.parametrize("name", ["a", "A-1_b", "x" * 50])
async def test_a_name_is_1_to_50_letters_digits_dashes_and_underscores(
    broker: Broker, name: str
) -> None:
    await broker.create_queue(name)
    assert (await broker.queue_stats(name)).name == name


@pytest.mark.parametrize("name", ["", "x" * 51, "a b", "a.b", "a/b", "\u00e4", "a\n"])
async def test_any_other_name_is_refused(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidName):
        await broker.create_queue(name)
    assert await broker.stats() == []


async def test_a_name_cannot_be_taken_twice(broker: Broker, queue: str) -> None:
    with pytest.raises(QueueExists):
        await broker.create_queue(queue)


async def test_names_of_dead_letter_queues_are_reserved(broker: Broker) -> None:
    with pytest.raises(ReservedQueue):
        await broker.create_queue("jobs-dlq")


async def test_queues_are_listed_by_name(broker: Broker) -> None:
    for name in ("b", "a", "c"):
        await broker.create_queue(name)
    assert [stats.name for stats in await broker.stats()] == ["a", "b", "c"]
    assert [stats.name for stats in await broker.queues(limit=2)] == ["a", "b"]
    assert [stats.name for stats in await broker.queues(after="b")] == ["c"]


async def test_a_queue_can_be_altered(broker: Broker, queue: str) -> None:
    altered = await broker.alter_queue(queue, max_messages=1)
    assert altered.config.max_messages == 1
    assert altered == await broker.queue_stats(queue)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_messages": 0},
        {"max_bytes": -1},
        {"retention_seconds": 0},
        {"retention_messages": -1},
        {"message_ttl_seconds": float("nan")},
        {"dedup_window_seconds": -1},
        {"colour": "red"},
        {"max_messages": "many"},
        {"fifo": "yes"},
        {"max_messages": 1.5},
    ],
)
async def test_a_setting_that_makes_no_sense_is_refused(
    broker: Broker, queue: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        await broker.create_queue("other", **settings)
    with pytest.raises(InvalidArgument):
        await broker.alter_queue(queue, **settings)
    assert [stats.name for stats in await broker.stats()] == [queue]
    assert (await broker.queue_stats(queue)).config == QueueConfig()


async def test_fifo_is_altered_only_while_the_queue_is_empty(broker: Broker, queue: str) -> None:
    await broker.alter_queue(queue, fifo=True)
    await broker.publish(queue, [b"a"])
    with pytest.raises(InvalidArgument):
        await broker.alter_queue(queue, fifo=False)


async def test_a_deleted_queue_is_gone_with_all_that_belongs_to_it(broker: Broker) -> None:
    # Given a queue with a message, a second subscription and a dead letter
    await broker.create_queue("jobs")
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.create_subscription("jobs", "audit")
    await broker.publish("jobs", [b"a"])
    (delivery,) = await broker.receive("jobs")
    await broker.nack("jobs", [delivery.receipt])
    assert [stats.name for stats in await broker.stats()] == ["jobs", "jobs-dlq"]
    # When it is deleted
    await broker.delete_queue("jobs")
    # Then there is nothing left, and the name is free
    assert await broker.stats() == []
    for call in (broker.receive("jobs"), broker.read("jobs"), broker.publish("jobs", [b"b"])):
        with pytest.raises(QueueNotFound):
            await call
    await broker.create_queue("jobs")
    assert await broker.receive("jobs") == []
    with pytest.raises(SubscriptionNotFound):
        await broker.receive("jobs", subscription="audit")


async def test_a_queue_that_does_not_exist_cannot_be_altered_purged_or_deleted(
    broker: Broker,
) -> None:
    for call in (
        broker.alter_queue("jobs", fifo=True),
        broker.purge_queue("jobs"),
        broker.delete_queue("jobs"),
        broker.queue_stats("jobs"),
    ):
        with pytest.raises(QueueNotFound):
            await call


async def test_a_purge_removes_every_message_for_every_subscription(
    world: World, broker: Broker, queue: str
) -> None:
    # Given three messages, one of them in flight, and a second subscription
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"a", b"b", b"c"])
    await broker.receive(queue)
    # When the queue is purged, and once more
    purged = [await broker.purge_queue(queue), await broker.purge_queue(queue)]
    # Then nothing is left to read or to receive
    assert purged == [3, 0]
    assert await broker.read(queue) == []
    assert await broker.receive(queue, limit=10) == []
    assert await broker.receive(queue, subscription="audit", limit=10) == []
    assert (await world.stats()).purged == 3
    assert (await broker.queue_stats(queue)).messages == 0
    # And the index goes on from where it was
    assert (await broker.publish(queue, [b"d"]))[0].index == 3
    assert bodies(await broker.receive(queue, limit=10)) == [b"d"]


async def test_a_purge_leaves_the_dead_letters(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.publish(queue, [b"bad", b"good"])
    (bad,) = await broker.receive(queue)
    await broker.nack(queue, [bad.receipt])
    # What a dead letter refers to is not purged, so it does not count.
    assert [await broker.purge_queue(queue), await broker.purge_queue(queue)] == [1, 0]
    stats = await broker.queue_stats(queue)
    assert (stats.purged, stats.messages, stats.dead_letters) == (1, 1, 1)
    assert bodies(await broker.dead_letters(queue)) == [b"bad"]
    assert await broker.replay(queue) == 1
    assert bodies(await broker.receive(queue, limit=10)) == [b"bad"]


async def test_a_purge_counts_what_retention_has_kept_for_a_reader(
    world: World, broker: Broker
) -> None:
    # Given a message in flight that is older than anything that the queue should still hold
    await broker.create_queue("jobs", retention_messages=0)
    await broker.publish("jobs", [b"slow"])
    await broker.receive("jobs")
    await broker.publish("jobs", [b"quick"])
    await broker.ack("jobs", await broker.receive("jobs"))
    await world.pass_time(1)
    assert (await broker.queue_stats("jobs")).messages == 1
    # Then the purge removes it, and says so
    assert await broker.purge_queue("jobs") == 1
    stats = await broker.queue_stats("jobs")
    assert (stats.purged, stats.messages) == (1, 0)


@pytest.mark.within_one_life
async def test_purges_count_each_message_once_while_others_publish_and_settle(
    broker: Broker, queue: str
) -> None:
    # When several publish and settle while others purge
    async def publish_and_settle() -> None:
        for _ in range(4):
            await broker.publish(queue, [b"x", b"y"])
            await broker.ack(queue, await broker.receive(queue))

    async def purge() -> int:
        return sum([await broker.purge_queue(queue) for _ in range(4)])

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(publish_and_settle())
        purges = [group.create_task(purge()) for _ in range(2)]
    # Then the answers add up to what was published, and to what the queue says
    purged = sum(one.result() for one in purges) + await broker.purge_queue(queue)
    assert purged == 3 * 4 * 2
    assert (await broker.queue_stats(queue)).purged == purged


async def test_a_purge_of_a_fifo_queue_gives_no_parked_message_away(broker: Broker) -> None:
    await broker.create_queue("jobs", fifo=True)
    await broker.publish("jobs", [NewMessage(body=b"x", group_key="g") for _ in range(3)])
    await broker.receive("jobs")
    await broker.purge_queue("jobs")
    assert await broker.receive("jobs", limit=10) == []


@pytest.mark.over_restarts
async def test_queues_and_their_settings_survive_a_restart(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", fifo=True, max_messages=7)
    await broker.create_queue("gone")
    await broker.delete_queue("gone")
    before = await broker.stats()
    await world.restart()
    assert await broker.stats() == before

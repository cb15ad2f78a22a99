from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import QueueFull
from tests.contract.world import World, bodies


async def test_a_full_queue_refuses_a_publish_and_loses_nothing(broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=2)
    await broker.publish("jobs", [b"a", b"b"])
    with pytest.raises(QueueFull) as refused:
        await broker.publish("jobs", [b"c"])
    assert refused.value.code == "queue_full"
    assert bodies(await broker.receive("jobs", limit=9)) == [b"a", b"b"]


async def test_a_batch_is_accepted_or_refused_as_a_whole(broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=3)
    await broker.publish("jobs", [b"a", b"b"])
    with pytest.raises(QueueFull):
        await broker.publish("jobs", [b"c", b"d"])
    assert (await broker.queue_stats("jobs")).messages == 2
    assert (await broker.publish("jobs", [b"e"]))[0].index == 2


async def test_settled_messages_make_room(broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=1)
    (published,) = await broker.publish("jobs", [b"a"])
    (delivery,) = await broker.receive("jobs")
    with pytest.raises(QueueFull):
        await broker.publish("jobs", [b"b"])
    await broker.ack("jobs", [delivery.receipt])
    await broker.publish("jobs", [b"b"])
    assert (await broker.get("jobs", published.id)).body == b"a"


async def test_what_has_expired_makes_room(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=1)
    await broker.publish("jobs", [NewMessage(body=b"a", expires_at=world.clock.later(5))])
    world.clock.advance(5)
    await broker.publish("jobs", [b"b"])
    assert bodies(await broker.receive("jobs", limit=9)) == [b"b"]


async def test_a_dead_letter_makes_room(broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=1)
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"a"])
    (delivery,) = await broker.receive("jobs")
    await broker.nack("jobs", [delivery.receipt])
    await broker.publish("jobs", [b"b"])


async def test_the_slowest_subscription_counts(broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=1)
    await broker.create_subscription("jobs", "slow")
    (published,) = await broker.publish("jobs", [b"a"])
    await broker.ack("jobs", [published.id])
    with pytest.raises(QueueFull):
        await broker.publish("jobs", [b"b"])
    await broker.ack("jobs", [published.id], "slow")
    await broker.publish("jobs", [b"b"])


async def test_a_filter_counts_only_what_it_lets_in(broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=1)
    await broker.create_subscription("jobs", "reds", filter='topic == "red"')
    await broker.delete_subscription("jobs", "default")
    await broker.publish("jobs", [b"plain"])
    await broker.publish("jobs", [NewMessage(body=b"red", topic="red")])
    with pytest.raises(QueueFull):
        await broker.publish("jobs", [NewMessage(body=b"red", topic="red")])


async def test_a_queue_may_be_bounded_in_bytes(broker: Broker) -> None:
    await broker.create_queue("jobs", max_bytes=10)
    await broker.publish("jobs", [b"x" * 6])
    with pytest.raises(QueueFull):
        await broker.publish("jobs", [b"x" * 5])
    await broker.publish("jobs", [b"x" * 4])
    await broker.ack_up_to("jobs", 2)
    await broker.publish("jobs", [b"x" * 10])


async def test_a_bound_can_be_altered(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    await broker.alter_queue(queue, max_messages=1)
    with pytest.raises(QueueFull):
        await broker.publish(queue, [b"c"])
    await broker.alter_queue(queue, max_messages=None)
    await broker.publish(queue, [b"c"])

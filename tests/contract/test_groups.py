from __future__ import annotations

import pytest_asyncio

from penstock.broker import Broker
from penstock.core.message import NewMessage
from tests.contract.world import World, bodies, receipts


def grouped(*names: str) -> list[NewMessage]:
    """``a1`` is a message of group ``a``."""
    return [NewMessage(body=name.encode(), group_key=name[0]) for name in names]


@pytest_asyncio.fixture
async def fifo(broker: Broker) -> str:
    await broker.create_queue("jobs", fifo=True)
    return "jobs"


async def test_groups_run_in_parallel_and_each_in_order(
    world: World, broker: Broker, fifo: str
) -> None:
    await broker.publish(fifo, grouped("a1", "a2", "b1", "b2", "a3"))
    # Given the first of each group in flight
    given = await broker.receive(fifo, limit=10)
    assert bodies(given) == [b"a1", b"b1"]
    stats = await world.stats()
    assert (stats.in_flight, stats.parked, stats.ready) == (2, 3, 0)
    # When one of them is done, then the next of its group goes, and only that
    await broker.ack(fifo, receipts(given)[:1])
    assert bodies(await broker.receive(fifo, limit=10)) == [b"a2"]


async def test_messages_without_a_group_are_not_ordered(broker: Broker, fifo: str) -> None:
    await broker.publish(fifo, [b"x", b"y", *grouped("a1", "a2")])
    assert bodies(await broker.receive(fifo, limit=10)) == [b"x", b"y", b"a1"]


async def test_without_fifo_a_group_means_nothing(broker: Broker, queue: str) -> None:
    await broker.publish(queue, grouped("a1", "a2"))
    assert bodies(await broker.receive(queue, limit=10)) == [b"a1", b"a2"]


async def test_a_failed_message_comes_again_before_the_next_of_its_group(
    world: World, broker: Broker, fifo: str
) -> None:
    await broker.publish(fifo, grouped("a1", "a2"))
    (first,) = await broker.receive(fifo, limit=5)
    await broker.nack(fifo, [first.receipt], delay_seconds=5)
    assert await broker.receive(fifo, limit=5) == []
    world.clock.advance(5)
    (again,) = await broker.receive(fifo, limit=5, lease_seconds=10)
    assert again.body == b"a1"
    world.clock.advance(10)
    assert bodies(await broker.receive(fifo, limit=5)) == [b"a1"]


async def test_a_delayed_message_holds_back_its_group_alone(
    world: World, broker: Broker, fifo: str
) -> None:
    late = NewMessage(body=b"a1", group_key="a", not_before=world.clock.later(5))
    await broker.publish(fifo, [late, *grouped("a2", "b1")])
    assert bodies(await broker.receive(fifo, limit=5)) == [b"b1"]
    world.clock.advance(5)
    assert bodies(await broker.receive(fifo, limit=5)) == [b"a1"]


async def test_a_dead_letter_lets_its_group_go_on(broker: Broker, fifo: str) -> None:
    await broker.alter_subscription(fifo, "default", max_deliveries=1)
    await broker.publish(fifo, grouped("a1", "a2", "a3"))
    (first,) = await broker.receive(fifo, limit=5)
    await broker.nack(fifo, [first.receipt])
    (second,) = await broker.receive(fifo, limit=5)
    assert second.body == b"a2"
    # When it is replayed, it waits for the one in flight, and goes before the others
    await broker.replay(fifo)
    assert await broker.receive(fifo, limit=5) == []
    await broker.ack(fifo, [second.receipt])
    assert bodies(await broker.receive(fifo, limit=5)) == [b"a1"]


async def test_a_replayed_message_goes_first_if_none_of_its_group_is_in_flight(
    broker: Broker, fifo: str
) -> None:
    await broker.alter_subscription(fifo, "default", max_deliveries=1)
    await broker.publish(fifo, grouped("a1", "a2"))
    (first,) = await broker.receive(fifo)
    await broker.nack(fifo, [first.receipt])
    await broker.replay(fifo)
    assert bodies(await broker.receive(fifo, limit=5)) == [b"a1"]


async def test_several_of_a_group_can_be_settled_in_one_go(broker: Broker, fifo: str) -> None:
    published = await broker.publish(fifo, grouped("a1", "a2", "a3", "a4"))
    await broker.receive(fifo)
    await broker.ack(fifo, [p.id for p in published[:3]])
    assert bodies(await broker.receive(fifo, limit=5)) == [b"a4"]
    await broker.ack_up_to(fifo, 4)
    assert await broker.receive(fifo, limit=5) == []


async def test_order_holds_whatever_the_priority(broker: Broker, fifo: str) -> None:
    low = NewMessage(body=b"a1", group_key="a", priority=0)
    high = NewMessage(body=b"a2", group_key="a", priority=9)
    await broker.publish(fifo, [low, high])
    assert bodies(await broker.receive(fifo, limit=5)) == [b"a1"]


async def test_every_subscription_has_its_own_order(broker: Broker, fifo: str) -> None:
    await broker.create_subscription(fifo, "evens", filter="body == 2 || body == 4")
    await broker.publish(fifo, [NewMessage(body=b"%d" % n, group_key="g") for n in range(1, 5)])
    assert bodies(await broker.receive(fifo, limit=5)) == [b"1"]
    assert bodies(await broker.receive(fifo, subscription="evens", limit=5)) == [b"2"]


async def test_what_was_given_back_waits_for_an_earlier_one_that_came_back(
    broker: Broker, fifo: str
) -> None:
    # Given two dead letters of a group, and a later message of it in flight
    await broker.alter_subscription(fifo, "default", max_deliveries=1)
    await broker.publish(fifo, grouped("a1", "a2", "a3", "a4"))
    for _ in range(2):
        await broker.nack(fifo, receipts(await broker.receive(fifo)))
    given = await broker.receive(fifo, limit=5)
    assert bodies(given) == [b"a3"]
    # When they are replayed, and the later one is given back as if it had never been delivered
    await broker.replay(fifo)
    assert await broker.receive(fifo, limit=5) == []
    await broker.give_back(fifo, receipts(given))
    # Then all are delivered in their order, one after the other
    order = []
    for _ in range(4):
        given = await broker.receive(fifo, limit=5)
        order += bodies(given)
        await broker.ack(fifo, receipts(given))
    assert order == [b"a1", b"a2", b"a3", b"a4"]

"""Deliveries that nobody got are taken back, and do not count."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage, to_datetime
from penstock.core.settling import Outcome
from penstock.storage import base
from tests.contract.world import World, bodies, indexes, receipts


async def test_what_is_given_back_comes_again_at_once_and_does_not_count(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a", b"b", b"c"])
    first = await broker.receive(queue, limit=2)

    assert await broker.give_back(queue, receipts(first)) == [Outcome.DONE] * 2

    again = await broker.receive(queue, limit=3)
    assert bodies(again) == [b"a", b"b", b"c"]
    assert [delivery.deliveries for delivery in again] == [1, 1, 1]
    stats = await world.stats()
    assert (stats.delivered, stats.returned, stats.redelivered) == (5, 2, 0)


async def test_an_epoch_is_never_used_again(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    (first,) = await broker.receive(queue)
    await broker.give_back(queue, [first.receipt])
    assert await broker.ack(queue, [first.receipt]) == [Outcome.NOT_LEASED]

    (second,) = await broker.receive(queue)

    assert second.epoch > first.epoch
    for settle in (broker.ack, broker.give_back, broker.nack):
        assert await settle(queue, [first.receipt]) == [Outcome.NOT_LEASED]
    assert await broker.ack(queue, [second.receipt]) == [Outcome.DONE]


async def test_the_count_and_the_reason_are_those_of_before(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=2)
    await broker.publish(queue, [b"a"])
    (first,) = await broker.receive(queue)
    await broker.nack(queue, [first.receipt], reason="broken")
    for _ in range(5):
        (delivery,) = await broker.receive(queue)
        assert delivery.deliveries == 2
        await broker.give_back(queue, [delivery.receipt])

    (last,) = await broker.receive(queue)
    await broker.nack(queue, [last.receipt])

    (letter,) = await broker.dead_letters(queue)
    assert letter.dead_letter is not None
    assert (letter.dead_letter.deliveries, letter.dead_letter.reason) == (2, "broken")


async def test_a_message_may_be_given_back_for_ever(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.publish(queue, [b"a"])
    for _ in range(3):
        (delivery,) = await broker.receive(queue)
        await broker.give_back(queue, [delivery.receipt])

    assert await broker.dead_letters(queue) == []
    assert (await broker.receive(queue))[0].deliveries == 1


async def test_a_group_stays_in_order(broker: Broker) -> None:
    await broker.create_queue("jobs", fifo=True)
    await broker.publish("jobs", [NewMessage(body=b, group_key="g") for b in (b"1", b"2")])
    (first,) = await broker.receive("jobs", limit=5)
    await broker.give_back("jobs", [first.receipt])

    (again,) = await broker.receive("jobs", limit=5)
    assert again.body == b"1"
    await broker.ack("jobs", [again.receipt])
    assert bodies(await broker.receive("jobs", limit=5)) == [b"2"]


async def test_priorities_count_as_before(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"low", NewMessage(body=b"high", priority=5)])
    deliveries = await broker.receive(queue, limit=2)
    await broker.give_back(queue, receipts(deliveries))

    assert bodies(await broker.receive(queue, limit=2)) == [b"high", b"low"]


async def test_what_has_expired_meanwhile_expires(world: World, broker: Broker, queue: str) -> None:
    soon = to_datetime(world.clock.now_ns()) + timedelta(seconds=5)
    await broker.publish(queue, [NewMessage(body=b"a", expires_at=soon), b"b"])
    deliveries = await broker.receive(queue, limit=2)
    await world.pass_time(6)

    await broker.give_back(queue, receipts(deliveries))

    assert indexes(await broker.receive(queue, limit=2)) == [1]
    assert (await world.stats()).expired == 1


async def test_what_was_polled_can_be_received_or_asked_for(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    deliveries = await broker.poll(queue, "default", start=0, count=2)
    await broker.give_back(queue, receipts(deliveries))

    assert (await broker.ask_again(queue, "default", 1)).deliveries == 1
    assert indexes(await broker.receive(queue, limit=2)) == [0]


async def test_a_dependent_goes_on_waiting(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"], start="earliest")
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    await broker.give_back(queue, [delivery.receipt])
    assert await broker.receive(queue, subscription="after") == []

    (again,) = await broker.receive(queue)
    await broker.ack(queue, [again.receipt])
    (late,) = await broker.receive(queue, subscription="after")
    await broker.give_back(queue, [late.receipt], "after")
    assert bodies(await broker.receive(queue, subscription="after")) == [b"a"]


async def test_it_goes_in_one_batch_with_others(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b", b"c"])
    first, second, third = receipts(await broker.receive(queue, limit=3))

    outcomes = await broker.settle(
        queue,
        [
            base.Ack(targets=[first]),
            base.GiveBack(targets=[second, first]),
            base.Nack(targets=[third], delay_seconds=60),
        ],
    )

    assert outcomes == [
        [Outcome.DONE],
        [Outcome.DONE, Outcome.ALREADY_SETTLED],
        [Outcome.DONE],
    ]
    assert indexes(await broker.receive(queue, limit=3)) == [1]


@pytest.mark.within_one_life
@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_receive_that_is_cancelled_has_not_happened(
    world: World, broker: Broker, queue: str, turns: int
) -> None:
    await broker.publish(queue, [b"a", b"b", b"c"])
    store = world.store
    receiving = asyncio.ensure_future(store.receive(queue, "default", base.Next(limit=2)))
    for _ in range(turns):  # nothing is decided; or they are leased, and wait for the disk
        await asyncio.sleep(0)
    was_done = receiving.done()
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)

    deliveries = await broker.receive(queue, limit=3)

    if was_done:
        assert bodies(deliveries) == [b"c"]
    else:
        assert bodies(deliveries) == [b"a", b"b", b"c"]
        assert [delivery.deliveries for delivery in deliveries] == [1, 1, 1]
        assert (await world.stats()).returned in (0, 2)

from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.settling import Outcome
from penstock.errors import InvalidArgument
from tests.contract.world import World, bodies, indexes, receipts


async def test_a_message_in_flight_is_nobody_elses(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    assert delivery.deadline == world.clock.later(30)
    world.clock.advance(29.999)
    assert await broker.receive(queue) == []


async def test_a_lease_that_runs_out_gives_the_message_back(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a", b"b"])
    (first,) = await broker.receive(queue)
    world.clock.advance(30)
    again = await broker.receive(queue, limit=5)
    assert bodies(again) == [b"a", b"b"]
    assert [d.deliveries for d in again] == [2, 1]
    assert again[0].receipt != first.receipt
    stats = await world.stats()
    assert (stats.leases_expired, stats.delivered, stats.redelivered) == (1, 3, 1)


async def test_a_lease_is_made_longer_by_as_much_as_is_asked_for(
    world: World, broker: Broker, queue: str
) -> None:
    # Given two leases, of 30 and of 100 seconds, after 20 of them
    await broker.publish(queue, [b"a", b"b", b"c"])
    (first,) = await broker.receive(queue)
    (second,) = await broker.receive(queue, lease_seconds=100)
    world.clock.advance(20)
    # When each gets ten seconds more
    targets = [first.receipt, second.id]
    assert await broker.extend(queue, targets, 10, further=True) == [Outcome.DONE] * 2
    # Then each ends ten seconds later than it would have, and no earlier
    world.clock.advance(19.999)
    assert bodies(await broker.receive(queue, limit=5, lease_seconds=1000)) == [b"c"]
    world.clock.advance(0.001)
    assert bodies(await broker.receive(queue, limit=5, lease_seconds=1000)) == [b"a"]
    world.clock.advance(69.999)
    assert await broker.receive(queue, limit=5) == []
    world.clock.advance(0.001)
    assert bodies(await broker.receive(queue, limit=5)) == [b"b"]


async def test_a_lease_without_an_end_cannot_be_made_longer(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.alter_subscription(queue, "default", lease_seconds=None)
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    assert await broker.extend(queue, [delivery.receipt], 1, further=True) == [Outcome.DONE]
    await world.pass_time(1000)
    assert await broker.receive(queue) == []
    assert await broker.ack(queue, [delivery.receipt]) == [Outcome.DONE]


async def test_no_lease_is_made_to_end_beyond_what_can_be_told(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    for _ in range(20):
        outcomes = await broker.extend(queue, [delivery.receipt], 1e9, further=True)
        assert outcomes == [Outcome.DONE]
    (viewed,) = await broker.view(queue)
    assert viewed.leased_until_ns == (world.clock.now_ns() + 10**18)


async def test_a_receive_may_ask_for_another_lease_time(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue, lease_seconds=5)
    assert delivery.deadline == world.clock.later(5)
    world.clock.advance(5)
    assert len(await broker.receive(queue)) == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
async def test_a_lease_time_must_be_above_zero(broker: Broker, queue: str, seconds: float) -> None:
    with pytest.raises(InvalidArgument):
        await broker.receive(queue, lease_seconds=seconds)
    await broker.publish(queue, [b"a"])
    with pytest.raises(InvalidArgument):
        await broker.receive(queue, lease_seconds=seconds)
    with pytest.raises(InvalidArgument):
        await broker.extend(queue, [], seconds)


async def test_a_receive_needs_a_limit_above_zero(broker: Broker, queue: str) -> None:
    with pytest.raises(InvalidArgument):
        await broker.receive(queue, limit=0)


async def test_without_a_lease_time_a_message_comes_again_only_on_request(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.alter_subscription(queue, "default", lease_seconds=None)
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    assert delivery.deadline is None
    await world.pass_time(10_000_000)
    assert await broker.receive(queue) == []
    assert (await broker.ask_again(queue, "default", 0)).body == b"a"


async def test_an_extended_lease_ends_later(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    given = await broker.receive(queue, limit=2)
    world.clock.advance(20)
    assert await broker.extend(queue, [given[0].receipt], 60) == [Outcome.DONE]
    world.clock.advance(10)
    assert bodies(await broker.receive(queue, limit=5, lease_seconds=100)) == [b"b"]
    world.clock.advance(50)
    assert bodies(await broker.receive(queue, limit=5)) == [b"a"]


async def test_an_extension_may_also_end_a_lease_sooner(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    await broker.extend(queue, [delivery.receipt], 1)
    world.clock.advance(1)
    assert len(await broker.receive(queue)) == 1


async def test_a_lease_extended_twice_ends_once(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    for seconds in (5, 6, 5):
        await broker.extend(queue, [delivery.receipt], seconds)
    await world.pass_time(100)
    assert (await world.stats()).leases_expired == 1
    assert len(await broker.receive(queue, limit=5)) == 1


async def test_a_lease_that_has_ended_cannot_be_extended(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    world.clock.advance(30)
    assert await broker.extend(queue, [delivery.receipt], 60) == [Outcome.NOT_LEASED]
    assert len(await broker.receive(queue)) == 1


async def test_no_more_than_max_in_flight_are_out_at_once(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_in_flight=2)
    await broker.publish(queue, [b"a", b"b", b"c"])
    given = await broker.receive(queue, limit=10)
    assert indexes(given) == [0, 1]
    assert await broker.receive(queue, limit=10) == []
    await broker.ack(queue, receipts(given)[:1])
    assert indexes(await broker.receive(queue, limit=10)) == [2]


async def test_a_clock_that_goes_back_changes_nothing(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    world.clock.advance(10)
    await broker.receive(queue, lease_seconds=5)
    world.clock.advance(-100)
    (published,) = await broker.publish(queue, [b"b"])
    assert bodies(await broker.receive(queue, limit=5)) == [b"b"]
    world.clock.advance(105)
    assert bodies(await broker.receive(queue, limit=5)) == [b"a"]
    assert (await broker.get(queue, published.id)).created_at == world.clock.later(-5)


@pytest.mark.over_restarts
async def test_leases_and_delivery_counts_survive_a_restart(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a", b"b"])
    (first,) = await broker.receive(queue)
    await world.restart()
    # The lease goes on, and nobody else gets the message
    assert bodies(await broker.receive(queue, limit=5)) == [b"b"]
    world.clock.advance(30)
    await world.restart()
    (again, _) = await broker.receive(queue, limit=5)
    assert (again.body, again.deliveries) == (b"a", 2)
    # The old receipt is stale for good
    assert await broker.ack(queue, [first.receipt]) == [Outcome.NOT_LEASED]
    await world.restart()
    assert await broker.ack(queue, [again.receipt]) == [Outcome.DONE]


@pytest.mark.over_restarts
async def test_a_message_that_kills_its_consumer_becomes_a_dead_letter(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=3)
    await broker.publish(queue, [b"poison"])
    for deliveries in (1, 2, 3):
        (delivery,) = await broker.receive(queue)
        assert delivery.deliveries == deliveries
        await world.restart()
        await world.pass_time(30)
    assert await broker.receive(queue) == []
    assert bodies(await broker.dead_letters(queue)) == [b"poison"]

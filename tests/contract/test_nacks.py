from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.retry import Backoff
from tests.contract.world import World, indexes, receipts


async def test_a_nacked_message_comes_again_at_once_by_default(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (first,) = await broker.receive(queue)
    await broker.nack(queue, [first.receipt])
    (again,) = await broker.receive(queue)
    assert (again.index, again.deliveries) == (0, 2)
    assert (await world.stats()).nacked == 1


async def test_a_nack_may_ask_for_a_delay(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    given = await broker.receive(queue, limit=2)
    await broker.nack(queue, receipts(given), delay_seconds=10)
    stats = await world.stats()
    assert (stats.delayed, stats.ready) == (2, 0)
    world.clock.advance(9.9)
    assert await broker.receive(queue, limit=5) == []
    world.clock.advance(0.1)
    assert indexes(await broker.receive(queue, limit=5)) == [0, 1]


async def test_a_fixed_backoff_waits_the_same_each_time(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs")
    await broker.alter_subscription("jobs", "default", backoff=Backoff(base_seconds=4))
    await broker.publish("jobs", [b"a"])
    for _ in range(3):
        (delivery,) = await broker.receive("jobs")
        await broker.nack("jobs", [delivery.receipt])
        world.clock.advance(3.9)
        assert await broker.receive("jobs") == []
        world.clock.advance(0.1)


async def test_an_exponential_backoff_waits_longer_each_time(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs")
    backoff = Backoff(kind="exponential", base_seconds=1, factor=3, max_seconds=10)
    await broker.alter_subscription("jobs", "default", backoff=backoff, max_deliveries=None)
    await broker.publish("jobs", [b"a"])
    for seconds in (1, 3, 9, 10, 10):
        (delivery,) = await broker.receive("jobs")
        await broker.nack("jobs", [delivery.receipt])
        world.clock.advance(seconds - 0.1)
        assert await broker.receive("jobs") == []
        world.clock.advance(0.1)


async def test_jitter_spreads_messages_that_failed_together(world: World, broker: Broker) -> None:
    # Given twenty messages that fail at the same moment
    await broker.create_queue("jobs")
    await broker.alter_subscription("jobs", "default", backoff=Backoff(base_seconds=10, jitter=0.5))
    await broker.publish("jobs", [b""] * 20)
    given = await broker.receive("jobs", limit=20)
    await broker.nack("jobs", receipts(given))
    # Then they come back over the second half of the wait
    world.clock.advance(4.9)
    assert await broker.receive("jobs", limit=20) == []
    world.clock.advance(2.6)
    early = len(await broker.receive("jobs", limit=20, lease_seconds=60))
    world.clock.advance(2.5)
    late = len(await broker.receive("jobs", limit=20, lease_seconds=60))
    assert (early + late, 0 < early < 20) == (20, True)


async def test_a_delay_overrides_the_backoff(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", backoff=Backoff(base_seconds=60))
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    await broker.nack(queue, [delivery.receipt], delay_seconds=0)
    assert len(await broker.receive(queue)) == 1


async def test_a_lease_that_ran_out_has_no_backoff(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.alter_subscription(queue, "default", backoff=Backoff(base_seconds=60))
    await broker.publish(queue, [b"a"])
    await broker.receive(queue)
    world.clock.advance(30)
    assert len(await broker.receive(queue)) == 1


@pytest.mark.over_restarts
async def test_a_backoff_goes_on_over_a_restart(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    await broker.nack(queue, [delivery.receipt], delay_seconds=10)
    await world.restart()
    assert await broker.receive(queue) == []
    world.clock.advance(10)
    (again,) = await broker.receive(queue)
    assert again.deliveries == 2

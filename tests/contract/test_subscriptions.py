from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.core.config import SubscriptionConfig
from penstock.core.retry import Backoff
from penstock.core.settling import Outcome
from penstock.errors import (
    InvalidArgument,
    InvalidName,
    QueueNotFound,
    SubscriptionExists,
    SubscriptionNotFound,
)
from tests.contract.world import World, bodies, indexes, receipts


async def test_every_subscription_gets_every_message(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"a", b"b"])
    assert bodies(await broker.receive(queue, limit=5)) == [b"a", b"b"]
    given = await broker.receive(queue, subscription="audit", limit=5)
    assert bodies(given) == [b"a", b"b"]
    # And what one does is nothing to the other
    await broker.ack(queue, receipts(given), "audit")
    await broker.nack(queue, [p.id for p in await broker.read(queue)])
    assert bodies(await broker.receive(queue, limit=5)) == [b"a", b"b"]
    assert await broker.receive(queue, subscription="audit", limit=5) == []


async def test_consumers_compete_on_one_subscription(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(9)])
    shares = [indexes(await broker.receive(queue, limit=3)) for _ in range(4)]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7, 8], []]


async def test_a_subscription_keeps_its_settings(world: World, broker: Broker, queue: str) -> None:
    config = SubscriptionConfig(
        filter='topic == "t"',
        after=("default",),
        on_dead_parent="cascade",
        lease_seconds=None,
        max_in_flight=3,
        max_deliveries=None,
        backoff=Backoff(kind="exponential", base_seconds=1, jitter=0.5),
        paused=True,
    )
    await broker.create_subscription(queue, "audit", config)
    stats = await world.stats("audit")
    assert (stats.config, stats.created_at) == (config, world.clock.now)


async def test_a_subscription_starts_where_it_is_told(
    world: World, broker: Broker, queue: str
) -> None:
    # Given messages of two moments
    await broker.publish(queue, [b"0", b"1"])
    world.clock.advance(10)
    moment = world.clock.now
    await broker.publish(queue, [b"2", b"3"])
    starts: dict[str, tuple[str | int | datetime, list[int]]] = {
        "earliest": ("earliest", [0, 1, 2, 3, 4]),
        "latest": ("latest", [4]),
        "index": (3, [3, 4]),
        "beyond": (100, [4]),
        "before": (-5, [0, 1, 2, 3, 4]),
        "time": (moment, [2, 3, 4]),
        "future": (world.clock.later(60), [4]),
    }
    # When subscriptions begin at different places, and one more message comes
    for name, (start, _) in starts.items():
        await broker.create_subscription(queue, name, start=start)
    await broker.publish(queue, [b"4"])
    # Then each gets what lies ahead of it
    for name, (_, expected) in starts.items():
        given = await broker.receive(queue, subscription=name, limit=9)
        assert indexes(given) == expected, name


@pytest.mark.parametrize("start", ["sometime", True, 1.5, None])
async def test_another_start_is_refused(broker: Broker, queue: str, start: object) -> None:
    with pytest.raises(InvalidArgument):
        await broker.create_subscription(queue, "audit", start=start)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await broker.seek(queue, start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"lease_seconds": 0},
        {"max_in_flight": 0},
        {"max_in_flight": None},
        {"max_deliveries": 0},
        {"max_deliveries": "three"},
        {"on_dead_parent": "cry"},
        {"backoff": 5},
        {"colour": "red"},
    ],
)
async def test_a_setting_that_makes_no_sense_is_refused(
    world: World, broker: Broker, queue: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        await broker.create_subscription(queue, "audit", **settings)
    with pytest.raises(InvalidArgument):
        await broker.alter_subscription(queue, "default", **settings)
    assert (await world.stats()).config == SubscriptionConfig()


@pytest.mark.within_one_life
async def test_consumers_who_ask_at_the_same_time_share_no_message(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"%d" % n for n in range(40)])

    async def consume(subscription: str) -> list[int]:
        receive = partial(broker.receive, queue, subscription=subscription, limit=3)
        shares = await asyncio.gather(
            *(receive() for _ in range(10)),
            *(broker.poll(queue, subscription, start=0, count=40) for _ in range(3)),
            *(receive() for _ in range(10)),
        )
        return sorted(index for share in shares for index in indexes(share))

    # Nor does one subscription take anything from another
    every = await asyncio.gather(consume("default"), consume("audit"))
    assert list(every) == [list(range(40))] * 2


async def test_names_follow_the_rule_and_are_taken_once(broker: Broker, queue: str) -> None:
    with pytest.raises(InvalidName):
        await broker.create_subscription(queue, "a b")
    with pytest.raises(SubscriptionExists):
        await broker.create_subscription(queue, "default")
    with pytest.raises(QueueNotFound):
        await broker.create_subscription("none", "audit")


async def test_a_subscription_can_be_made_unless_it_is_there(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    # When it is asked for several times, the last time as it would be by default
    made = await broker.ensure_subscription(queue, "s", start="earliest", lease_seconds=7)
    await broker.pause(queue, "s")
    found = await broker.ensure_subscription(queue, "s", SubscriptionConfig(lease_seconds=7))
    with pytest.raises(SubscriptionExists, match="other settings: lease_seconds;"):
        await broker.ensure_subscription(queue, "s")
    # Then the first call made it, and it stays as it is
    assert (made.is_new, made.ready) == (True, 2)
    assert (found.is_new, found.ready, found.config.paused) == (False, 2, True)
    assert not (await broker.ensure_subscription(queue, "default")).is_new
    with pytest.raises(QueueNotFound):
        await broker.ensure_subscription("none", "s")


async def test_a_subscription_is_returned_by_whoever_defines_it(
    world: World, broker: Broker, queue: str
) -> None:
    made = await broker.create_subscription(queue, "b", lease_seconds=7)
    assert (made.name, made.config, made.secret) == ("b", SubscriptionConfig(lease_seconds=7), None)
    assert made.created_at == world.clock.now
    altered = await broker.alter_subscription(queue, "b", lease_seconds=8)
    assert altered.config == SubscriptionConfig(lease_seconds=8)
    await broker.create_subscription(queue, "a")
    # And it is listed by its name
    assert [one.name for one in await broker.subscriptions(queue)] == ["a", "b", "default"]
    assert (await broker.subscription_stats(queue, "b")).config == altered.config
    with pytest.raises(SubscriptionNotFound):
        await broker.subscription_stats(queue, "c")


async def test_a_setting_takes_effect_at_once(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    await broker.alter_subscription(queue, "default", max_in_flight=1, lease_seconds=5)
    (given,) = await broker.receive(queue, limit=9)
    assert given.deadline == world.clock.later(5)


async def test_a_deleted_subscription_is_gone(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue, subscription="audit")
    await broker.delete_subscription(queue, "audit")
    for call in (
        broker.receive(queue, subscription="audit"),
        broker.ack(queue, [delivery.receipt], "audit"),
        broker.alter_subscription(queue, "audit", paused=True),
        broker.delete_subscription(queue, "audit"),
        broker.seek(queue, 0, "audit"),
    ):
        with pytest.raises(SubscriptionNotFound):
            await call


async def test_a_new_subscription_of_an_old_name_starts_afresh(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"a"])
    (old,) = await broker.receive(queue, subscription="audit")
    await broker.delete_subscription(queue, "audit")
    await broker.create_subscription(queue, "audit", start="earliest")
    (new,) = await broker.receive(queue, subscription="audit")
    assert new.deliveries == 1
    assert old.receipt != new.receipt
    assert await broker.ack(queue, [new.receipt], "audit") == [Outcome.DONE]


async def test_a_paused_subscription_gives_nothing_until_it_is_resumed(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"a", b"b"])
    (given,) = await broker.receive(queue)
    await broker.pause(queue)
    assert await broker.receive(queue, limit=5) == []
    assert await broker.poll(queue, "default", start=0, count=5) == []
    assert len(await broker.receive(queue, subscription="audit", limit=5)) == 2
    # What is in flight goes on: it can be acked, and its lease can end
    await world.pass_time(10)
    assert await broker.ack(queue, [given.receipt]) == [Outcome.DONE]
    await broker.resume(queue)
    assert bodies(await broker.receive(queue, limit=5)) == [b"b"]


@pytest.mark.over_restarts
async def test_subscriptions_survive_a_restart(world: World, broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "audit", filter='topic == "t"', max_in_flight=2)
    await broker.create_subscription(queue, "gone")
    await broker.publish(queue, [b"a"])
    await broker.pause(queue)
    await broker.delete_subscription(queue, "gone")
    before = await broker.stats()
    await world.restart()
    assert await broker.stats() == before
    assert await broker.receive(queue) == []

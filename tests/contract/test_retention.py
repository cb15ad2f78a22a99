from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.core.settling import Outcome
from tests.contract.world import World, bodies, indexes, receipts


async def publish_and_ack(broker: Broker, queue: str, *messages: bytes) -> None:
    for message in messages:
        (published,) = await broker.publish(queue, [message])
        await broker.ack(queue, [published.id])


async def test_history_is_kept_for_a_time(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_seconds=100)
    await publish_and_ack(broker, "jobs", b"a")
    await world.pass_time(60)
    await publish_and_ack(broker, "jobs", b"b")
    await world.pass_time(41)
    assert bodies(await broker.read("jobs")) == [b"b"]
    stats = await broker.queue_stats("jobs")
    assert (stats.first_index, stats.messages, stats.bytes) == (1, 1, 1)
    await world.pass_time(60)
    assert await broker.read("jobs") == []


async def test_history_is_kept_up_to_a_count(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=2)
    await publish_and_ack(broker, "jobs", b"a", b"b", b"c")
    await world.pass_time(1)
    assert bodies(await broker.read("jobs")) == [b"b", b"c"]


async def test_history_is_kept_up_to_some_bytes(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_bytes=10)
    await publish_and_ack(broker, "jobs", b"a" * 4, b"b" * 4, b"c" * 4)
    await world.pass_time(1)
    assert bodies(await broker.read("jobs")) == [b"b" * 4, b"c" * 4]


async def test_a_batch_may_be_cut_in_the_middle(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=2)
    await broker.publish("jobs", [b"a", b"b", b"c", b"d", b"e"])
    await broker.ack_up_to("jobs", 5)
    await world.pass_time(1)
    assert bodies(await broker.read("jobs")) == [b"d", b"e"]
    assert (await broker.publish("jobs", [b"f"]))[0].index == 5


async def test_a_message_that_is_gone_is_not_found_but_still_settled(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", retention_messages=0)
    (published,) = await broker.publish("jobs", [b"a"])
    (delivery,) = await broker.receive("jobs")
    await broker.ack("jobs", [delivery.receipt])
    await world.pass_time(1)
    assert await broker.find("jobs", [published.id]) == [None]
    assert await broker.ack("jobs", [delivery.receipt, published.id]) == [
        Outcome.ALREADY_SETTLED,
        Outcome.NOT_FOUND,
    ]


async def test_what_somebody_still_needs_is_kept_all_the_same(world: World, broker: Broker) -> None:
    # Given a queue that keeps nothing, with one message in flight, one delayed and one ready
    await broker.create_queue("jobs", retention_messages=0, retention_seconds=10)
    await broker.create_subscription("jobs", "slow", filter='topic == "t"')
    await broker.publish("jobs", [b"0", b"1", b"2", NewMessage(body=b"3", topic="t"), b"4"])
    given = await broker.receive("jobs", limit=5, lease_seconds=100)
    await broker.nack("jobs", [given[1].receipt], delay_seconds=50)
    await broker.ack("jobs", [given[at].receipt for at in (2, 3, 4)])
    # When retention has passed them all
    await world.pass_time(20)
    assert await broker.read("jobs") == []
    stats = await broker.queue_stats("jobs")
    assert (stats.first_index, stats.messages) == (5, 3)
    # Then each of them can still be delivered, looked up and settled
    assert [d.body for d in await broker.receive("jobs", subscription="slow")] == [b"3"]
    await world.pass_time(30)
    (again,) = await broker.receive("jobs", limit=5)
    assert (again.body, again.deliveries) == (b"1", 2)
    assert (await broker.get("jobs", again.id)).body == b"1"
    assert await broker.ack("jobs", [given[0].receipt, again.receipt]) == [Outcome.DONE] * 2
    await broker.ack_up_to("jobs", 5, "slow")
    assert (await broker.queue_stats("jobs")).messages == 0
    assert await broker.find("jobs", [again.id]) == [None]


async def test_groups_and_priorities_hold_beyond_retention(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", fifo=True, retention_messages=0)
    await broker.publish(
        "jobs",
        [
            NewMessage(body=b"0", group_key="g"),
            NewMessage(body=b"1", group_key="g"),
            NewMessage(body=b"2", priority=9),
            NewMessage(body=b"3", not_before=world.clock.later(60)),
        ],
    )
    await world.pass_time(1)
    given = await broker.receive("jobs", limit=9)
    assert bodies(given) == [b"2", b"0"]
    await broker.ack("jobs", receipts(given))
    assert bodies(await broker.receive("jobs", limit=9)) == [b"1"]
    await world.pass_time(59)
    assert b"3" in bodies(await broker.receive("jobs", limit=9))


async def test_if_told_so_retention_takes_the_unsettled_too(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=1, retain_unsettled=False)
    await broker.publish("jobs", [b"a", b"b", b"c"])
    (given,) = await broker.receive("jobs")
    await world.pass_time(1)
    assert await broker.ack("jobs", [given.receipt]) == [Outcome.ALREADY_SETTLED]
    assert bodies(await broker.receive("jobs", limit=9)) == [b"c"]
    assert (await world.stats()).expired == 2


async def test_who_starts_at_the_earliest_gets_what_is_kept(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=1)
    await broker.create_subscription("jobs", "slow")
    await broker.publish("jobs", [b"0", b"1"])
    await broker.ack_up_to("jobs", 2)
    await world.pass_time(1)
    await broker.create_subscription("jobs", "new", start="earliest")
    assert indexes(await broker.receive("jobs", subscription="new", limit=9)) == [1]
    assert indexes(await broker.receive("jobs", subscription="slow", limit=9)) == [0, 1]


async def test_a_subscription_that_goes_lets_go_of_what_it_needed(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", retention_messages=0)
    await broker.create_subscription("jobs", "slow")
    await broker.publish("jobs", [b"0", b"1"])
    await broker.ack_up_to("jobs", 2)
    await world.pass_time(1)
    assert (await broker.queue_stats("jobs")).messages == 2
    await broker.delete_subscription("jobs", "slow")
    assert (await broker.queue_stats("jobs")).messages == 0


@pytest.mark.over_restarts
async def test_what_was_kept_aside_survives_restarts(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=0)
    await broker.publish("jobs", [b"0", b"1", b"2"])
    await broker.ack("jobs", [(await broker.read("jobs"))[1].id])
    await world.pass_time(1)
    before = await broker.stats()
    await world.restart()
    assert await broker.stats() == before
    await publish_and_ack(broker, "jobs", b"3")
    await world.pass_time(1)
    await world.restart()
    assert bodies(await broker.receive("jobs", limit=9)) == [b"0", b"2"]

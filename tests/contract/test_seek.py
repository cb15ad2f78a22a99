from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.core.settling import Outcome
from tests.contract.world import World, bodies, indexes, receipts


async def test_going_back_delivers_again_what_was_done(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(5)])
    await broker.ack_up_to(queue, 5)
    await broker.seek(queue, 2)
    given = await broker.receive(queue, limit=9)
    assert [(d.index, d.deliveries) for d in given] == [(2, 1), (3, 1), (4, 1)]
    assert (await world.stats()).lowest_unacked_index == 2


async def test_going_forward_skips_and_counts(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(5)])
    await broker.ack_up_to(queue, 1)
    await broker.seek(queue, 3)
    assert indexes(await broker.receive(queue, limit=9)) == [3, 4]
    assert (await world.stats()).skipped == 2


async def test_a_seek_may_name_a_time_or_an_end(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"0"])
    world.clock.advance(10)
    moment = world.clock.now
    await broker.publish(queue, [b"1", b"2"])
    for start, expected in (
        (moment, [1, 2]),
        ("earliest", [0, 1, 2]),
        (world.clock.later(-5), [1, 2]),
        ("latest", []),
        (world.clock.later(-20), [0, 1, 2]),
        (world.clock.later(5), []),
    ):
        await broker.seek(queue, start)
        assert indexes(await broker.receive(queue, limit=9)) == expected


async def test_deliveries_in_flight_become_void(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"0", b"1"])
    old = await broker.receive(queue, limit=2)
    await broker.seek(queue, 1)
    assert (await world.stats()).in_flight == 0
    assert await broker.ack(queue, receipts(old)) == [Outcome.ALREADY_SETTLED, Outcome.NOT_LEASED]
    (new,) = await broker.receive(queue, limit=9)
    assert (new.index, new.deliveries) == (1, 1)
    assert await broker.ack(queue, [old[1].receipt]) == [Outcome.NOT_LEASED]
    await world.pass_time(30)
    assert (await world.stats()).leases_expired == 1


async def test_a_seek_moves_one_subscription_alone(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"0", b"1"])
    await broker.seek(queue, "latest", "audit")
    assert await broker.receive(queue, subscription="audit", limit=9) == []
    assert indexes(await broker.receive(queue, limit=9)) == [0, 1]


@pytest.mark.parametrize("text", ['topic == "red"', 'topic == "red" && priority >= 0'])
async def test_a_filter_finds_messages_from_before_it_was_made(
    world: World, broker: Broker, queue: str, text: str
) -> None:
    # Given a filtered subscription that began in the middle, and another beside it
    red = NewMessage(body=b"red", topic="red")
    await broker.publish(queue, [red, b"plain", red])
    await broker.create_subscription(queue, "reds", filter=text)
    await broker.create_subscription(queue, "beside", filter=text)
    await broker.publish(queue, [b"plain", red])
    # When it goes back
    await broker.seek(queue, "earliest", "reds")
    # Then it gets what matches from there on; the other one is not moved
    assert indexes(await broker.receive(queue, subscription="reds", limit=9)) == [0, 2, 4]
    assert (await world.stats("beside")).ready == 1
    assert indexes(await broker.receive(queue, subscription="beside", limit=9)) == [4]
    # And once more, from a later place
    await broker.seek(queue, 1, "reds")
    stats = await world.stats("reds")
    assert (stats.ready, stats.filtered) == (2, 2)
    assert indexes(await broker.receive(queue, subscription="reds", limit=9)) == [2, 4]


async def test_going_back_keeps_delays_groups_and_priorities(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", fifo=True)
    await broker.publish(
        "jobs",
        [
            NewMessage(body=b"0", group_key="g"),
            NewMessage(body=b"1", group_key="g"),
            NewMessage(body=b"2", priority=9),
            NewMessage(body=b"3", not_before=world.clock.later(5)),
        ],
    )
    await broker.ack_up_to("jobs", 4)
    await broker.seek("jobs", 0)
    given = await broker.receive("jobs", limit=9)
    assert bodies(given) == [b"2", b"0"]
    world.clock.advance(5)
    assert bodies(await broker.receive("jobs", limit=9)) == [b"3"]


async def test_who_waits_for_others_still_waits_after_a_seek(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.publish(queue, [b"0", b"1", b"2"])
    await broker.ack_up_to(queue, 2)
    await broker.ack_up_to(queue, 2, "after")
    await broker.seek(queue, 0, "after")
    assert indexes(await broker.receive(queue, subscription="after", limit=9)) == [0, 1]
    assert await broker.held(queue, "after") == [2]


async def test_a_seek_cannot_go_behind_what_is_kept(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=1)
    await broker.publish("jobs", [b"0", b"1", b"2"])
    await broker.ack_up_to("jobs", 3)
    await world.pass_time(1)
    await broker.seek("jobs", 0)
    assert indexes(await broker.receive("jobs", limit=9)) == [2]


@pytest.mark.over_restarts
async def test_a_seek_survives_a_restart(world: World, broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    await broker.publish(queue, [b"0", NewMessage(body=b"1", topic="red"), b"2"])
    await broker.ack_up_to(queue, 3)
    await broker.seek(queue, 1)
    await broker.seek(queue, "latest", "reds")
    await broker.seek(queue, "earliest", "reds")
    before = await broker.stats()
    await world.restart()
    assert await broker.stats() == before
    assert indexes(await broker.receive(queue, limit=9)) == [1, 2]
    assert indexes(await broker.receive(queue, subscription="reds", limit=9)) == [1]

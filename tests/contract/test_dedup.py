from __future__ import annotations

import asyncio

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import QueueFull
from tests.contract.world import World, bodies


def keyed(body: bytes, key: str = "k") -> NewMessage:
    return NewMessage(body=body, dedup_key=key)


async def test_the_second_publish_is_answered_with_the_firsts_id(
    broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"before"])
    (first,) = await broker.publish(queue, [keyed(b"a")])
    (second,) = await broker.publish(queue, [keyed(b"b")])
    assert (second.index, second.id, second.duplicate) == (first.index, first.id, True)
    assert bodies(await broker.read(queue)) == [b"before", b"a"]
    assert (await broker.queue_stats(queue)).next_index == 2


async def test_a_key_is_remembered_for_five_minutes(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [keyed(b"a")])
    await world.pass_time(299)
    assert (await broker.publish(queue, [keyed(b"b")]))[0].duplicate
    await world.pass_time(1)
    assert not (await broker.publish(queue, [keyed(b"c")]))[0].duplicate
    assert bodies(await broker.read(queue)) == [b"a", b"c"]


async def test_the_window_is_a_setting(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", dedup_window_seconds=10)
    await broker.publish("jobs", [keyed(b"a")])
    world.clock.advance(10)
    assert not (await broker.publish("jobs", [keyed(b"b")]))[0].duplicate


async def test_a_key_counts_even_after_its_message_was_acked(broker: Broker, queue: str) -> None:
    (first,) = await broker.publish(queue, [keyed(b"a")])
    await broker.ack(queue, [first.id])
    assert (await broker.publish(queue, [keyed(b"b")]))[0].id == first.id
    assert await broker.receive(queue) == []


async def test_duplicates_within_one_batch_are_found(broker: Broker, queue: str) -> None:
    result = await broker.publish(
        queue, [b"0", keyed(b"1"), keyed(b"2"), keyed(b"3", "other"), keyed(b"4"), b"5"]
    )
    assert [(p.index, p.duplicate) for p in result] == [
        (0, False),
        (1, False),
        (1, True),
        (2, False),
        (1, True),
        (3, False),
    ]
    assert result[2].id == result[4].id == result[1].id
    stored = await broker.read(queue)
    assert bodies(stored) == [b"0", b"1", b"3", b"5"]
    assert [m.id for m in stored] == [result[at].id for at in (0, 1, 3, 5)]


async def test_a_duplicate_takes_no_room_in_a_bounded_queue(broker: Broker) -> None:
    await broker.create_queue("jobs", max_messages=1)
    await broker.publish("jobs", [keyed(b"a")])
    assert (await broker.publish("jobs", [keyed(b"b")]))[0].duplicate
    with pytest.raises(QueueFull):
        await broker.publish("jobs", [keyed(b"c"), b"d"])
    assert (await broker.queue_stats("jobs")).messages == 1


async def test_keys_of_one_queue_mean_nothing_in_another(broker: Broker, queue: str) -> None:
    await broker.create_queue("other")
    await broker.publish(queue, [keyed(b"a")])
    assert not (await broker.publish("other", [keyed(b"a")]))[0].duplicate


@pytest.mark.within_one_life
async def test_duplicates_that_arrive_at_the_same_time_are_found(
    broker: Broker, queue: str
) -> None:
    results = await asyncio.gather(
        broker.publish(queue, [b"x", keyed(b"1")]),
        broker.publish(queue, [keyed(b"2"), b"y"]),
        broker.publish(queue, [keyed(b"3", "other")]),
    )
    first, second, third = ([(p.index, p.duplicate) for p in result] for result in results)
    assert (first, second, third) == (
        [(0, False), (1, False)],
        [(1, True), (2, False)],
        [(3, False)],
    )
    assert results[1][0].id == results[0][1].id
    assert bodies(await broker.read(queue)) == [b"x", b"1", b"y", b"3"]


@pytest.mark.over_restarts
async def test_keys_survive_a_restart(world: World, broker: Broker, queue: str) -> None:
    (first,) = await broker.publish(queue, [keyed(b"a")])
    await world.restart()
    (second,) = await broker.publish(queue, [keyed(b"b")])
    assert (second.id, second.duplicate) == (first.id, True)


async def test_duplicates_in_a_batch_take_no_space(broker: Broker, queue: str) -> None:
    await broker.create_queue("same")
    await broker.publish(queue, [keyed(b"a"), b"b", keyed(b"again"), keyed(b"c", "l")])
    await broker.publish("same", [keyed(b"a"), b"b", keyed(b"c", "l")])
    stats, same = await broker.queue_stats(queue), await broker.queue_stats("same")
    assert (stats.messages, stats.bytes) == (same.messages, same.bytes)

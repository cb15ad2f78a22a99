from __future__ import annotations

import asyncio
from array import array
from datetime import UTC, datetime

import pytest

from penstock.broker import Broker
from penstock.core.bodies import PackedBodies
from penstock.core.limits import (
    MAX_BATCH_MESSAGES,
    MAX_BODY_BYTES,
)
from penstock.core.message import Message, NewMessage
from penstock.core.publishing import prepare_packed
from penstock.errors import (
    BatchTooLarge,
    InvalidArgument,
    MessageNotFound,
    MessageTooLarge,
    ReservedQueue,
)
from tests.contract.world import World, bodies, indexes


async def test_messages_get_the_next_indexes_and_ids_that_sort(broker: Broker, queue: str) -> None:
    first = await broker.publish(queue, [b"a", b"b"])
    second = await broker.publish(queue, [b"c"])
    published = [*first, *second]
    assert [p.index for p in published] == [0, 1, 2]
    assert [p.id for p in published] == sorted({p.id for p in published})
    assert not any(p.duplicate for p in published)


async def test_the_answer_states_the_durability(world: World, broker: Broker, queue: str) -> None:
    result = await broker.publish(queue, [b"a"])
    assert result.durability == broker.durability == world.backend.durability


async def test_a_batch_in_one_piece_is_as_good_as_a_list(broker: Broker, queue: str) -> None:
    # Given a subscription with a filter, and a batch whose bodies lie in one buffer
    await broker.create_subscription(queue, "some", filter="body == 22")
    batch = prepare_packed(PackedBodies(memoryview(b"122333"), array("I", [1, 2, 0, 3])))
    # When it is published
    published = await broker.publish(queue, batch)
    # Then it is received, read and looked up one by one
    deliveries = await broker.receive(queue, limit=10)
    assert bodies(deliveries) == bodies(await broker.read(queue)) == [b"1", b"22", b"", b"333"]
    assert (await broker.get(queue, published[3].id)).body == b"333"
    assert bodies(await broker.receive(queue, subscription="some")) == [b"22"]


async def test_a_message_comes_back_as_it_was_published(
    world: World, broker: Broker, queue: str
) -> None:
    # Given a message with everything that one can have
    clock = world.clock
    message = NewMessage(
        body=b'{"n": 1}\x00\xff',
        content_type="application/json",
        attributes={"tenant": "acme", "": "\u00fc"},
        topic="orders",
        priority=7,
        not_before=clock.later(-1),
        expires_at=clock.later(60),
        group_key="g",
        dedup_key="d",
    )
    (published,) = await broker.publish(queue, [message])
    # When it is received, read and looked up
    (delivery,) = await broker.receive(queue)
    (read,) = await broker.read(queue)
    found = await broker.get(queue, published.id)
    # Then each time it is the same
    assert read == found
    for name in Message.__struct_fields__:
        assert getattr(delivery, name) == getattr(read, name)
    assert read.queue == queue
    assert (read.index, read.id, read.created_at) == (0, published.id, clock.now)
    for name in NewMessage.__struct_fields__:
        assert getattr(read, name) == getattr(message, name)
    assert read.dead_letter is None
    assert (delivery.deliveries, delivery.deadline) == (1, clock.later(30))


async def test_plain_bytes_and_messages_can_be_mixed_in_a_batch(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", NewMessage(body=b"b", topic="t"), b""])
    read = await broker.read(queue)
    assert bodies(read) == [b"a", b"b", b""]
    assert [m.topic for m in read] == [None, "t", None]


async def test_a_body_of_one_mebibyte_is_accepted_and_one_byte_more_is_not(
    broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"x" * MAX_BODY_BYTES])
    with pytest.raises(MessageTooLarge):
        await broker.publish(queue, [b"small", b"x" * (MAX_BODY_BYTES + 1)])
    assert len((await broker.read(queue))[0].body) == MAX_BODY_BYTES
    assert (await broker.queue_stats(queue)).messages == 1


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 11},
        {"priority": -1},
        {"priority": 1.5},
        {"topic": 5},
        {"attributes": {"a": 1}},
        {"not_before": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"expires_at": datetime(9999, 1, 1, tzinfo=UTC)},
        {"topic": "\ud800"},
    ],
)
async def test_a_message_that_makes_no_sense_is_refused(
    broker: Broker, queue: str, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgument):
        await broker.publish(queue, [b"good", NewMessage(body=b"bad", **options)])  # type: ignore[arg-type]
    assert (await broker.queue_stats(queue)).messages == 0


async def test_a_body_must_be_bytes(broker: Broker, queue: str) -> None:
    with pytest.raises(InvalidArgument):
        await broker.publish(queue, ["text"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument):
        await broker.publish(queue, [NewMessage(body="text")])  # type: ignore[arg-type]


async def test_attributes_that_are_too_large_are_refused(broker: Broker, queue: str) -> None:
    with pytest.raises(MessageTooLarge):
        await broker.publish(queue, [NewMessage(body=b"", attributes={"a": "x" * 70_000})])


async def test_a_batch_is_limited_in_messages_and_bytes(broker: Broker, queue: str) -> None:
    with pytest.raises(BatchTooLarge):
        await broker.publish(queue, [b""] * (MAX_BATCH_MESSAGES + 1))
    with pytest.raises(BatchTooLarge):
        await broker.publish(queue, [b"x" * MAX_BODY_BYTES] * 17)
    with pytest.raises(InvalidArgument):
        await broker.publish(queue, [])
    assert len(await broker.publish(queue, [b""] * MAX_BATCH_MESSAGES)) == MAX_BATCH_MESSAGES


async def test_nobody_but_the_broker_writes_dead_letters(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    await broker.nack(queue, [delivery.receipt])
    with pytest.raises(ReservedQueue):
        await broker.publish(f"{queue}-dlq", [b"b"])


async def test_reading_touches_nobodys_progress(world: World, broker: Broker, queue: str) -> None:
    published = await broker.publish(queue, [b"a", b"b", b"c", b"d"])
    assert bodies(await broker.read(queue, start=1, limit=2)) == [b"b", b"c"]
    assert bodies(await broker.read(queue, start=3)) == [b"d"]
    assert await broker.read(queue, start=4) == []
    found = await broker.find(queue, [published[2].id, "no-such-id", published[0].id])
    assert [m and m.index for m in found] == [2, None, 0]
    stats = await world.stats()
    assert (stats.ready, stats.delivered) == (4, 0)


async def test_a_read_needs_a_limit_above_zero(broker: Broker, queue: str) -> None:
    with pytest.raises(InvalidArgument):
        await broker.read(queue, limit=0)


async def test_an_id_of_another_queue_is_not_found(broker: Broker, queue: str) -> None:
    await broker.create_queue("other")
    (published,) = await broker.publish("other", [b"a"])
    await broker.publish(queue, [b"a"])
    with pytest.raises(MessageNotFound):
        await broker.get(queue, published.id)


@pytest.mark.within_one_life
async def test_publishes_at_the_same_time_keep_each_batch_together(
    broker: Broker, queue: str
) -> None:
    batches = [[b"%d-%d" % (batch, n) for n in range(5)] for batch in range(20)]
    results = await asyncio.gather(*(broker.publish(queue, batch) for batch in batches))
    stored = bodies(await broker.read(queue, limit=1000))
    for batch, result in zip(batches, results, strict=True):
        first = result[0].index
        assert [p.index for p in result] == list(range(first, first + 5))
        assert stored[first : first + 5] == batch


@pytest.mark.within_one_life
async def test_of_publishes_at_the_same_time_only_the_bad_one_is_refused(
    broker: Broker, queue: str
) -> None:
    await broker.create_queue("small", max_messages=1)
    results = await asyncio.gather(
        broker.publish("small", [b"1", b"2"]),
        broker.publish("small", [b"3"]),
        broker.publish("none", [b"4"]),
        broker.publish(queue, [b"5"]),
        return_exceptions=True,
    )
    assert [getattr(result, "code", "") for result in results] == [
        "queue_full",
        "",
        "queue_not_found",
        "",
    ]
    assert bodies(await broker.read("small")) == [b"3"]


@pytest.mark.over_restarts
async def test_messages_survive_a_restart(world: World, broker: Broker, queue: str) -> None:
    published = await broker.publish(queue, [b"a", NewMessage(body=b"b", attributes={"k": "v"})])
    before = await broker.read(queue)
    await world.restart()
    assert await broker.read(queue) == before
    assert await broker.get(queue, published[1].id) == before[1]
    assert indexes(await broker.receive(queue, limit=5)) == [0, 1]
    assert (await broker.publish(queue, [b"c"]))[0].index == 2

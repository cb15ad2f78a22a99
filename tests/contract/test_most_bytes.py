"""What is received together may be bounded by its bytes."""

from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from tests.contract.world import World, indexes


async def test_large_messages_come_in_small_numbers(broker: Broker, queue: str) -> None:
    for _ in range(3):
        await broker.publish(queue, [b"x" * 1000] * 4)

    first = await broker.receive(queue, limit=100, most_bytes=5500)
    second = await broker.receive(queue, limit=100, most_bytes=100_000)

    assert indexes(first) == [0, 1, 2, 3, 4]
    assert indexes(second) == list(range(5, 12))


async def test_it_is_one_at_least(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"x" * 1000] * 2)

    assert indexes(await broker.receive(queue, limit=9, most_bytes=1)) == [0]
    assert indexes(await broker.poll(queue, "default", start=0, count=9, most_bytes=1)) == [1]


async def test_a_poll_goes_on_where_the_bytes_ended(broker: Broker, queue: str) -> None:
    for _ in range(4):
        await broker.publish(queue, [b"x" * 1000])

    for expected in ([0, 1], [2, 3]):
        polled = await broker.poll(queue, "default", start=0, count=9, most_bytes=2500)
        assert indexes(polled) == expected


async def test_priorities_and_returned_messages_are_bounded_too(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [NewMessage(body=b"x" * 1000, priority=n % 3) for n in range(9)])

    first = await broker.receive(queue, limit=9, most_bytes=4500)
    await broker.give_back(queue, first)
    again = await broker.receive(queue, limit=9, most_bytes=4500)

    assert indexes(first) == indexes(again) == [2, 5, 8, 1]


async def test_it_is_never_more_than_asked_for(broker: Broker, queue: str) -> None:
    # Given the first of many small messages ready, and large ones behind them
    small = await broker.publish(queue, [b"x"] * 100)
    await broker.publish(queue, [b"x" * 1000] * 9)
    await broker.ack(queue, [message.id for message in small[3:]])
    # When some of the large ones would be too much
    given = await broker.receive(queue, limit=5, most_bytes=1500)
    # Then it is the small ones that are ready, and what fits
    assert indexes(given) == [0, 1, 2, 100]


async def test_dead_letters_are_as_large_as_what_failed(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    for _ in range(3):
        await broker.publish(queue, [b"x" * 1000])
    await broker.nack(queue, await broker.receive(queue, limit=3))

    assert len(await broker.receive(f"{queue}-dlq", limit=9, most_bytes=2500)) == 2


async def test_old_messages_kept_aside_are_bounded_too(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=0)
    for _ in range(3):
        await broker.publish("jobs", [b"x" * 1000])
    await world.pass_time(1)
    assert (await broker.queue_stats("jobs")).first_index == 3

    assert 1 <= len(await broker.receive("jobs", limit=9, most_bytes=2500)) <= 2


@pytest.mark.parametrize("most", [0, -1, "1"])
async def test_a_bound_that_is_none_is_refused(broker: Broker, queue: str, most: int) -> None:
    with pytest.raises(Exception, match="most_bytes"):
        await broker.receive(queue, most_bytes=most)
    with pytest.raises(Exception, match="most_bytes"):
        await broker.poll(queue, "default", start=0, count=1, most_bytes=most)

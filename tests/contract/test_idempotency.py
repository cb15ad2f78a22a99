"""A publish with an idempotency key is stored once, however often it comes."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.core.publishing import PublishResult
from penstock.errors import InvalidArgument
from tests.contract.world import World, bodies


def answer(result: PublishResult) -> list[tuple[int, str]]:
    return [(one.index, one.id) for one in result]


async def test_the_second_is_answered_as_the_first_was(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"before"])
    first = await broker.publish(queue, [b"a", b"b"], idempotency_key="k")
    await broker.publish(queue, [b"between"])

    second = await broker.publish(queue, [b"a", b"b"], idempotency_key="k")

    assert answer(second) == answer(first)
    assert [one.duplicate for one in second] == [True, True]
    assert bodies(await broker.read(queue)) == [b"before", b"a", b"b", b"between"]
    assert (await broker.queue_stats(queue)).duplicates in (0, 2)  # a restart forgets the count


async def test_other_keys_and_other_queues_are_others(broker: Broker, queue: str) -> None:
    await broker.create_queue("other")
    await broker.publish(queue, [b"a"], idempotency_key="k")

    for name, key in ((queue, "l"), ("other", "k"), (queue, None)):
        (one,) = await broker.publish(name, [b"a"], idempotency_key=key)
        assert not one.duplicate
    (message,) = await broker.publish(queue, [NewMessage(body=b"a", dedup_key="k")])
    assert not message.duplicate, "a message's own key is another thing"


async def test_a_key_counts_for_the_dedup_window(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", dedup_window_seconds=10)
    first = await broker.publish("jobs", [b"a"], idempotency_key="k")
    await world.pass_time(9)
    assert answer(await broker.publish("jobs", [b"a"], idempotency_key="k")) == answer(first)
    world.clock.advance(1)
    assert not (await broker.publish("jobs", [b"a"], idempotency_key="k"))[0].duplicate


async def test_a_key_counts_when_the_messages_are_gone(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=0)
    first = await broker.publish("jobs", [b"a", b"b"], idempotency_key="k")
    await broker.ack_up_to("jobs", 2)
    await world.pass_time(1)
    assert await broker.read("jobs") == []

    assert answer(await broker.publish("jobs", [b"a", b"b"], idempotency_key="k")) == answer(first)
    assert await broker.read("jobs") == []


async def test_messages_that_were_there_by_their_own_keys_are_answered_again(
    broker: Broker, queue: str
) -> None:
    keyed = NewMessage(body=b"own", dedup_key="own")
    await broker.publish(queue, [keyed])
    first = await broker.publish(queue, [b"a", keyed, b"b"], idempotency_key="k")
    assert [one.index for one in first] == [1, 0, 2]

    second = await broker.publish(queue, [b"a", keyed, b"b"], idempotency_key="k")

    assert answer(second) == answer(first)
    assert (await broker.queue_stats(queue)).next_index == 3


async def test_another_number_of_messages_is_another_publish(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"], idempotency_key="k")
    with pytest.raises(InvalidArgument, match="used for a publish of 1 messages"):
        await broker.publish(queue, [b"a", b"b"], idempotency_key="k")


@pytest.mark.parametrize("most", [None, 4])
@pytest.mark.within_one_life
async def test_of_those_that_come_at_once_one_is_stored(broker: Broker, most: int | None) -> None:
    await broker.create_queue("jobs", max_messages=most)

    same = [broker.publish("jobs", [b"a", b"b"], idempotency_key="k") for _ in range(3)]
    first, other, *rest = await asyncio.gather(
        same[0], broker.publish("jobs", [b"c"], idempotency_key="l"), *same[1:]
    )

    assert [answer(one) for one in rest] == [answer(first)] * 2
    assert not other[0].duplicate
    assert sorted(bodies(await broker.read("jobs"))) == [b"a", b"b", b"c"]


@pytest.mark.within_one_life
async def test_one_that_is_refused_is_refused_alone(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"], idempotency_key="k")

    wrong, right = await asyncio.gather(
        broker.publish(queue, [b"a", b"b"], idempotency_key="k"),
        broker.publish(queue, [b"c"]),
        return_exceptions=True,
    )

    assert isinstance(wrong, InvalidArgument)
    assert isinstance(right, PublishResult)


@pytest.mark.parametrize("key", ["", "x" * 256, 7, b"k", "\ud800"])
async def test_what_is_no_key_is_refused(broker: Broker, queue: str, key: str) -> None:
    with pytest.raises(InvalidArgument):
        await broker.publish(queue, [b"a"], idempotency_key=key)
    assert await broker.read(queue) == []

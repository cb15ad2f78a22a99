from __future__ import annotations

from penstock.broker import Broker
from penstock.core.message import NewMessage
from tests.contract.world import bodies, indexes, receipts


def with_priority(*priorities: int) -> list[NewMessage]:
    return [NewMessage(body=str(p).encode(), priority=p) for p in priorities]


async def test_messages_come_in_the_order_of_their_indexes(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b", b"c"])
    assert bodies(await broker.receive(queue, limit=2)) == [b"a", b"b"]
    assert bodies(await broker.receive(queue, limit=2)) == [b"c"]
    assert await broker.receive(queue, limit=2) == []


async def test_one_receive_gives_one_message_unless_asked_for_more(
    broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a", b"b"])
    assert bodies(await broker.receive(queue)) == [b"a"]


async def test_a_higher_priority_comes_first_and_within_one_the_lower_index(
    broker: Broker, queue: str
) -> None:
    await broker.publish(queue, with_priority(0, 5, 10, 5, 0, 10))
    assert indexes(await broker.receive(queue, limit=10)) == [2, 5, 1, 3, 0, 4]


async def test_a_late_message_of_high_priority_overtakes(broker: Broker, queue: str) -> None:
    await broker.publish(queue, with_priority(1, 1))
    assert indexes(await broker.receive(queue)) == [0]
    await broker.publish(queue, with_priority(9))
    assert indexes(await broker.receive(queue, limit=5)) == [2, 1]


async def test_what_comes_back_goes_before_what_never_went(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b", b"c", b"d"])
    given = await broker.receive(queue, limit=2)
    await broker.nack(queue, receipts(given)[:1])
    assert indexes(await broker.receive(queue, limit=2)) == [0, 2]


async def test_what_comes_back_keeps_its_priority(broker: Broker, queue: str) -> None:
    await broker.publish(queue, with_priority(3, 9, 0))
    given = await broker.receive(queue, limit=3)
    await broker.nack(queue, receipts(given))
    assert indexes(await broker.receive(queue, limit=3)) == [1, 0, 2]


async def test_priorities_hold_behind_a_filter_too(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "high", filter="priority >= 3")
    await broker.publish(queue, with_priority(0, 3, 9, 1, 3))
    assert indexes(await broker.receive(queue, subscription="high", limit=9)) == [2, 1, 4]

"""A filter that comes late: the messages that were there before are put through it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import NotFound, QueueNotFound, StorageClosed, SubscriptionNotFound
from tests.contract.world import World

pytestmark = pytest.mark.within_one_life

BACKLOG = 5000
EVEN = "int(attributes.number) % 2 == 0"


def numbered(start: int, stop: int) -> list[NewMessage]:
    return [NewMessage(body=b"x", attributes={"number": str(n)}) for n in range(start, stop)]


async def fill(broker: Broker, queue: str, backlog: int = BACKLOG) -> None:
    for start in range(0, backlog, BACKLOG):
        await broker.publish(queue, numbered(start, start + BACKLOG))


async def under_way(call: Coroutine[object, object, object]) -> asyncio.Task[object]:
    """A call that has begun to look at the backlog."""
    task = asyncio.create_task(call)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_others_go_on_while_a_backlog_is_looked_at(broker: Broker, queue: str) -> None:
    # Given a backlog that takes many turns, and a store that has done what it does by itself after
    # so much: a filter leaves its threads little time, and the publish would wait for them
    backlog = 4 * BACKLOG
    await fill(broker, queue, backlog)
    await asyncio.sleep(0.1)
    # When somebody publishes while a filtered subscription is being created
    creating = await under_way(
        broker.create_subscription(queue, "even", filter=EVEN, start="earliest")
    )
    publishing = asyncio.create_task(broker.publish(queue, numbered(backlog, backlog + 10)))
    stored = backlog
    while stored == backlog:
        await asyncio.sleep(0)
        stored = (await broker.queue_stats(queue)).messages
    was_first = not creating.done()
    await asyncio.gather(publishing, creating)
    # Then the publish took effect without waiting for it, and the subscription has old and new
    assert was_first
    await broker.alter_subscription(queue, "even", max_in_flight=backlog)
    given: list[int] = []
    while batch := await broker.receive(queue, subscription="even", limit=BACKLOG):
        given += [delivery.index for delivery in batch]
    assert given == list(range(0, backlog + 10, 2))


async def test_busy_publishers_do_not_keep_a_subscription_from_being_created(
    broker: Broker, queue: str
) -> None:
    # Given those who publish, turn after turn, more than is looked at between two pauses
    is_created = asyncio.Event()

    async def publish_on() -> None:
        while not is_created.is_set():
            await broker.publish(queue, numbered(0, 1000))

    publishers = [asyncio.create_task(publish_on()) for _ in range(3)]
    await broker.publish(queue, numbered(0, 10))
    # When a filtered subscription is created, it comes to an end
    try:
        async with asyncio.timeout(30):
            await broker.create_subscription(queue, "even", filter=EVEN, start="earliest")
    finally:
        is_created.set()
        await asyncio.gather(*publishers)


async def test_a_queue_made_anew_does_not_get_the_subscription_of_the_old_one(
    broker: Broker, queue: str, world: World
) -> None:
    await fill(broker, queue)
    creating = await under_way(
        broker.create_subscription(queue, "even", filter=EVEN, start="earliest")
    )
    await asyncio.gather(broker.delete_queue(queue), broker.create_queue(queue))
    # Where deleting takes its time it may find neither the old one nor the new one. Where that is
    # also noted in an archive, it may be done before, and gone with the old one.
    errors: tuple[type[NotFound], ...] = (QueueNotFound,)
    if world.backend.durability == "replicated":
        errors = (QueueNotFound, SubscriptionNotFound)
    with pytest.raises(errors, match=r"made anew|there is no queue|has no subscription 'even'"):
        await creating
    with pytest.raises(SubscriptionNotFound):
        await broker.receive(queue, subscription="even")


async def test_a_queue_that_was_deleted_gets_no_subscription(broker: Broker, queue: str) -> None:
    await fill(broker, queue)
    creating = await under_way(
        broker.create_subscription(queue, "even", filter=EVEN, start="earliest")
    )
    await broker.delete_queue(queue)
    with pytest.raises(QueueNotFound):
        await creating


async def test_a_subscription_made_anew_is_not_moved_by_a_seek_of_the_old_one(
    broker: Broker, queue: str
) -> None:
    await fill(broker, queue)
    await broker.create_subscription(queue, "even", filter=EVEN, start="latest")
    seeking = await under_way(broker.seek(queue, "earliest", "even"))
    await asyncio.gather(
        broker.delete_subscription(queue, "even"),
        broker.create_subscription(queue, "even", start="latest"),
    )
    with pytest.raises(SubscriptionNotFound, match="made anew"):
        await seeking
    assert await broker.receive(queue, subscription="even") == []


async def test_a_store_that_is_closed_does_not_go_on_looking(broker: Broker, queue: str) -> None:
    await fill(broker, queue)
    creating = await under_way(
        broker.create_subscription(queue, "even", filter=EVEN, start="earliest")
    )
    await broker.close()
    with pytest.raises(StorageClosed):
        await creating

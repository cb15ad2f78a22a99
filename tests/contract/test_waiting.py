"""Long polls. Real time passes here only as far as the event loop needs to turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.core.message import Delivery, NewMessage
from penstock.core.retry import Backoff
from penstock.errors import QueueNotFound, StorageClosed, SubscriptionNotFound
from tests.contract.world import World, bodies, receipts

pytestmark = pytest.mark.within_one_life

# Nobody waits this long; a wait that is not ended by what it waits for fails the test.
LONG = 30.0


async def begin(broker: Broker, queue: str, **options: object) -> asyncio.Task[list[Delivery]]:
    """A long poll that is under way."""
    task = asyncio.create_task(broker.receive(queue, wait_seconds=LONG, **options))  # type: ignore[arg-type]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def ends(task: asyncio.Task[list[Delivery]]) -> list[bytes]:
    async with asyncio.timeout(5):
        return bodies(await task)


async def test_who_waits_gets_the_message_when_it_comes(broker: Broker, queue: str) -> None:
    waiting = await begin(broker, queue)
    await broker.publish(queue, [b"a"])
    assert await ends(waiting) == [b"a"]


async def test_without_a_message_a_wait_ends_empty(broker: Broker, queue: str) -> None:
    assert await broker.receive(queue, wait_seconds=0.01) == []


async def test_who_finds_a_message_does_not_wait(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    async with asyncio.timeout(5):
        assert bodies(await broker.receive(queue, wait_seconds=LONG)) == [b"a"]


async def test_of_many_who_wait_each_message_goes_to_one(broker: Broker, queue: str) -> None:
    waiting = [await begin(broker, queue) for _ in range(3)]
    await broker.publish(queue, [b"a"])
    await broker.publish(queue, [b"b", b"c"])
    assert sorted([await ends(task) for task in waiting]) == [[b"a"], [b"b"], [b"c"]]


async def test_one_that_gave_up_does_not_keep_the_message_from_the_next(
    broker: Broker, queue: str
) -> None:
    first, second = await begin(broker, queue), await begin(broker, queue)
    first.cancel()
    await broker.publish(queue, [b"a"])
    assert await ends(second) == [b"a"]


async def _nack(world: World, given: list[Delivery]) -> None:
    await world.broker.nack("jobs", receipts(given))


async def _ack(world: World, given: list[Delivery]) -> None:
    await world.broker.ack("jobs", receipts(given))


async def _let_the_lease_end(world: World, given: list[Delivery]) -> None:
    await world.pass_time(30)


async def _seek(world: World, given: list[Delivery]) -> None:
    await world.broker.seek("jobs", 0)


async def _raise_the_cap(world: World, given: list[Delivery]) -> None:
    await world.broker.alter_subscription("jobs", "default", max_in_flight=2)


@pytest.mark.parametrize("ready_again", [_nack, _let_the_lease_end, _seek, _ack, _raise_the_cap])
async def test_whatever_makes_a_message_ready_ends_the_wait(
    world: World,
    broker: Broker,
    queue: str,
    ready_again: Callable[[World, list[Delivery]], Awaitable[None]],
) -> None:
    await broker.alter_subscription(queue, "default", max_in_flight=1)
    await broker.publish(queue, [b"a", b"b"])
    given = await broker.receive(queue)
    waiting = await begin(broker, queue)
    await ready_again(world, given)
    assert len(await ends(waiting)) == 1


async def test_a_resumed_subscription_ends_the_wait(broker: Broker, queue: str) -> None:
    await broker.pause(queue)
    await broker.publish(queue, [b"a"])
    waiting = await begin(broker, queue)
    await broker.resume(queue)
    assert await ends(waiting) == [b"a"]


async def test_a_replay_ends_the_wait(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.publish(queue, [b"a"])
    await broker.nack(queue, receipts(await broker.receive(queue)))
    waiting = await begin(broker, queue)
    await broker.replay(queue)
    assert await ends(waiting) == [b"a"]


async def test_a_dead_letter_ends_the_wait_for_dead_letters(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.publish(queue, [b"a", b"b"])
    first, second = await broker.receive(queue, limit=2)
    await broker.nack(queue, [first.receipt])
    letters = f"{queue}-dlq"
    await broker.ack(letters, receipts(await broker.receive(letters)))
    waiting = await begin(broker, letters)
    await broker.nack(queue, [second.receipt])
    assert await ends(waiting) == [b"b"]


@pytest.mark.parametrize("way", ["ack", "release", "delete"])
async def test_who_waits_for_others_is_woken_by_them(broker: Broker, queue: str, way: str) -> None:
    await broker.create_subscription(queue, "first")
    await broker.create_subscription(queue, "after", after=["first"])
    (published,) = await broker.publish(queue, [b"a"])
    waiting = await begin(broker, queue, subscription="after")
    if way == "ack":
        await broker.ack(queue, [published.id], "first")
    elif way == "release":
        await broker.release(queue, "after", [0])
    else:
        await broker.delete_subscription(queue, "first")
    assert await ends(waiting) == [b"a"]


async def test_who_ignores_what_a_cascade_buried_is_woken(broker: Broker, queue: str) -> None:
    # Given a chain: what the first gives up on, the second does too, and the third takes it then
    await broker.create_subscription(queue, "first", max_deliveries=1)
    await broker.create_subscription(queue, "second", after=["first"], on_dead_parent="cascade")
    await broker.create_subscription(queue, "third", after=["second"], on_dead_parent="ignore")
    await broker.publish(queue, [b"a"])
    given = await broker.receive(queue, subscription="first")
    waiting = await begin(broker, queue, subscription="third")
    # When the first gives up
    await broker.nack(queue, receipts(given), subscription="first")
    # Then the third gets it
    assert await ends(waiting) == [b"a"]


async def test_the_next_of_a_group_ends_the_wait_even_if_it_was_delayed(
    world: World, broker: Broker
) -> None:
    # Given a group whose second message had a delay that is over by now
    await broker.create_queue("jobs", fifo=True)
    late = NewMessage(body=b"2", group_key="g", not_before=world.clock.later(5))
    await broker.publish("jobs", [NewMessage(body=b"1", group_key="g"), late])
    await broker.alter_subscription("jobs", "default", lease_seconds=None)
    (first,) = await broker.receive("jobs")
    world.clock.advance(5)
    waiting = await begin(broker, "jobs")
    # When the first one is done
    await broker.ack("jobs", [first.receipt])
    assert await ends(waiting) == [b"2"]


@pytest.mark.parametrize("way", ["time", "ack"])
async def test_the_next_in_order_ends_the_wait_when_the_one_in_its_backoff_is_due_or_done(
    world: World, broker: Broker, queue: str, way: str
) -> None:
    # Given a subscription that keeps order, whose first message is in its backoff
    await broker.create_subscription(
        queue,
        "called",
        callback=Callback(url="https://a.example/hook", ordered=True),
        backoff=Backoff(base_seconds=0.5 if way == "time" else 100),
    )
    await broker.publish(queue, [b"a", b"b"])
    (given,) = await broker.receive(queue, subscription="called")
    await broker.nack(queue, receipts([given]), subscription="called")
    # Then nobody is told that there is something
    assert not await broker.wait(queue, "called", 0.001)
    waiting = await begin(broker, queue, subscription="called")
    # When that is over, or the message is done by its id
    if way == "time":
        world.clock.advance(0.5)
    else:
        await broker.ack(queue, [given.id], "called")
    # Then whoever waits gets what is next
    assert await ends(waiting) == [b"a" if way == "time" else b"b"]


async def test_a_delay_shorter_than_the_wait_is_noticed(
    world: World, broker: Broker, queue: str
) -> None:
    # Given somebody who waits when a message for a little later comes
    waiting = await begin(broker, queue)
    soon = NewMessage(body=b"a", not_before=world.clock.later(0.02))
    await broker.publish(queue, [soon])
    # When that time has come, and nothing else happens
    world.clock.advance(0.02)
    assert await ends(waiting) == [b"a"]


async def test_the_end_of_a_lease_is_noticed(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    waiting_before = await broker.receive(queue, lease_seconds=0.02)
    waiting = await begin(broker, queue)
    world.clock.advance(0.02)
    assert await ends(waiting) == bodies(waiting_before)


async def test_a_queue_or_subscription_that_goes_ends_the_wait(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "audit")
    on_subscription = await begin(broker, queue, subscription="audit")
    on_queue = await begin(broker, queue)
    await broker.delete_subscription(queue, "audit")
    with pytest.raises(SubscriptionNotFound):
        await ends(on_subscription)
    await broker.delete_queue(queue)
    with pytest.raises(QueueNotFound):
        await ends(on_queue)


async def test_closing_the_store_ends_the_wait(broker: Broker, queue: str) -> None:
    waiting = await begin(broker, queue)
    await broker.close()
    with pytest.raises(StorageClosed):
        await ends(waiting)

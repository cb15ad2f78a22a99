from __future__ import annotations

import pytest
import pytest_asyncio

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.core.settling import Outcome
from penstock.errors import InvalidArgument, QueueNotFound, ReservedQueue
from tests.contract.world import QUEUE, World, bodies, indexes, receipts

LETTERS = f"{QUEUE}-dlq"


@pytest_asyncio.fixture
async def strict(broker: Broker) -> str:
    """A queue on which a message may fail once."""
    await broker.create_queue(QUEUE)
    await broker.alter_subscription(QUEUE, "default", max_deliveries=1)
    return QUEUE


async def fail(
    broker: Broker, *, count: int = 1, subscription: str = "default", reason: str = ""
) -> None:
    given = await broker.receive(QUEUE, subscription=subscription, limit=count)
    assert len(given) == count
    await broker.nack(QUEUE, receipts(given), subscription, reason=reason)


async def test_a_message_that_failed_too_often_becomes_a_dead_letter(
    world: World, broker: Broker, queue: str
) -> None:
    # Given a message that may be delivered three times
    await broker.alter_subscription(queue, "default", max_deliveries=3)
    message = NewMessage(body=b"bad", attributes={"k": "v"}, topic="t", priority=3)
    (published,) = await broker.publish(queue, [message])
    # When it fails three times
    for _ in range(3):
        assert await broker.dead_letters(queue) == []
        await fail(broker, reason="no luck")
    # Then it is a dead letter, with all that it was and why
    assert await broker.receive(queue) == []
    (letter,) = await broker.dead_letters(queue)
    assert (letter.queue, letter.index, letter.id) == (LETTERS, 0, published.id)
    assert (letter.body, letter.attributes, letter.topic, letter.priority) == (
        b"bad",
        {"k": "v"},
        "t",
        3,
    )
    why = letter.dead_letter
    assert why is not None
    assert (why.queue, why.subscription, why.index) == (queue, "default", 0)
    assert (why.deliveries, why.reason, why.failed_at) == (3, "no luck", world.clock.now)
    stats = await world.stats()
    assert (stats.dead_lettered, stats.ready, stats.nacked) == (1, 0, 2)
    assert (await broker.queue_stats(queue)).dead_letters == 1


async def test_leases_that_run_out_count_as_failures(
    world: World, broker: Broker, strict: str
) -> None:
    await broker.publish(strict, [b"bad"])
    (delivery,) = await broker.receive(strict)
    await world.pass_time(30)
    (letter,) = await broker.dead_letters(strict)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason == "max-deliveries"
    assert await broker.ack(strict, [delivery.receipt]) == [Outcome.ALREADY_SETTLED]


async def test_a_letter_says_what_the_last_nack_said_though_the_last_lease_ran_out(
    world: World, broker: Broker, queue: str
) -> None:
    # Given a message that was nacked with a reason, and then without one
    await broker.alter_subscription(queue, "default", max_deliveries=5)
    await broker.publish(queue, [b"bad"])
    for reason in ("first", "second", ""):
        await fail(broker, reason=reason)
    # When its last two leases run out
    for _ in range(2):
        assert await broker.receive(queue)
        await world.pass_time(30)
    # Then the last reason that anybody gave is on the letter
    (letter,) = await broker.dead_letters(queue)
    assert letter.dead_letter is not None
    assert (letter.dead_letter.deliveries, letter.dead_letter.reason) == (5, "second")


async def test_without_a_limit_a_message_never_becomes_one(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=None)
    await broker.publish(queue, [b"a"])
    for _ in range(20):
        await fail(broker)
    assert (await broker.receive(queue))[0].deliveries == 21


async def test_dead_letters_are_listed_in_order_by_parts(broker: Broker, strict: str) -> None:
    await broker.publish(strict, [b"a", b"b", b"c"])
    await fail(broker, count=3)
    assert bodies(await broker.dead_letters(strict)) == [b"a", b"b", b"c"]
    assert bodies(await broker.dead_letters(strict, start=1, limit=1)) == [b"b"]
    assert await broker.dead_letters(strict, start=3) == []


async def test_a_queue_without_dead_letters_has_none(broker: Broker, queue: str) -> None:
    assert await broker.dead_letters(queue) == []
    assert await broker.replay(queue) == 0
    assert await broker.discard(queue) == 0


async def test_a_replay_gives_all_of_them_back(world: World, broker: Broker, strict: str) -> None:
    await broker.publish(strict, [b"a", b"b"])
    await fail(broker, count=2)
    assert await broker.replay(strict) == 2
    assert await broker.dead_letters(strict) == []
    given = await broker.receive(strict, limit=5)
    # As if they had never been delivered
    assert [(d.body, d.deliveries) for d in given] == [(b"a", 1), (b"b", 1)]
    await broker.ack(strict, receipts(given))
    stats = await world.stats()
    assert (stats.replayed, stats.acked, stats.dead_lettered) == (2, 2, 2)


async def test_a_replay_may_be_of_some(broker: Broker, strict: str) -> None:
    published = await broker.publish(strict, [b"a", b"b", b"c"])
    await fail(broker, count=3)
    assert await broker.replay(strict, [published[1].id, "unknown"]) == 1
    assert bodies(await broker.dead_letters(strict)) == [b"a", b"c"]
    assert bodies(await broker.receive(strict, limit=5)) == [b"b"]


async def test_a_replay_goes_to_the_subscription_that_failed(broker: Broker, strict: str) -> None:
    await broker.create_subscription(strict, "audit", max_deliveries=1)
    await broker.publish(strict, [b"a"])
    await fail(broker, subscription="audit")
    (delivery,) = await broker.receive(strict)
    await broker.ack(strict, [delivery.receipt])
    assert await broker.replay(strict) == 1
    assert await broker.receive(strict) == []
    assert bodies(await broker.receive(strict, subscription="audit")) == [b"a"]


async def test_an_id_stands_for_the_letters_of_every_subscription(
    broker: Broker, strict: str
) -> None:
    await broker.create_subscription(strict, "audit", max_deliveries=1)
    (published,) = await broker.publish(strict, [b"a"])
    await fail(broker)
    await fail(broker, subscription="audit")
    letters = await broker.dead_letters(strict)
    assert [m.dead_letter and m.dead_letter.subscription for m in letters] == ["default", "audit"]
    assert await broker.replay(strict, [published.id]) == 2


async def test_a_replayed_message_may_fail_again(broker: Broker, strict: str) -> None:
    await broker.publish(strict, [b"a"])
    await fail(broker, reason="first")
    await broker.replay(strict)
    await fail(broker, reason="second")
    (letter,) = await broker.dead_letters(strict)
    assert letter.dead_letter is not None
    assert (letter.index, letter.dead_letter.reason) == (1, "second")


async def test_discarded_letters_are_gone(broker: Broker, strict: str) -> None:
    published = await broker.publish(strict, [b"a", b"b"])
    await fail(broker, count=2)
    assert await broker.discard(strict, [published[0].id]) == 1
    assert bodies(await broker.dead_letters(strict)) == [b"b"]
    assert await broker.discard(strict) == 1
    assert await broker.replay(strict) == 0
    assert await broker.receive(strict) == []


async def test_dead_letters_can_be_consumed_like_any_queue(
    world: World, broker: Broker, strict: str
) -> None:
    await broker.publish(strict, [b"a", b"b"])
    await fail(broker, count=2)
    first, second = await broker.receive(LETTERS, limit=5)
    assert (first.body, first.queue) == (b"a", LETTERS)
    await broker.ack(LETTERS, [first.receipt])
    assert bodies(await broker.dead_letters(strict)) == [b"b"]
    # What is in flight there can still be replayed, and the delivery is void then
    assert await broker.replay(strict) == 1
    assert await broker.ack(LETTERS, [second.receipt]) == [Outcome.ALREADY_SETTLED]
    assert bodies(await broker.receive(strict, limit=5)) == [b"b"]


async def test_dead_letters_have_no_dead_letters(broker: Broker, strict: str) -> None:
    await broker.publish(strict, [b"a"])
    await fail(broker)
    for _ in range(10):
        (delivery,) = await broker.receive(LETTERS)
        await broker.nack(LETTERS, [delivery.receipt])
    assert bodies(await broker.dead_letters(strict)) == [b"a"]
    with pytest.raises(InvalidArgument):
        await broker.alter_subscription(LETTERS, "default", max_deliveries=2)


async def test_the_queue_of_dead_letters_is_the_brokers(broker: Broker, strict: str) -> None:
    await broker.publish(strict, [b"a"])
    await fail(broker)
    for call in (
        broker.delete_queue(LETTERS),
        broker.create_subscription(LETTERS, "audit"),
        broker.delete_subscription(LETTERS, "default"),
        broker.seek(LETTERS, 0),
    ):
        with pytest.raises(ReservedQueue):
            await call


@pytest.mark.over_restarts
async def test_how_long_letters_live_can_be_set_before_there_are_any(
    world: World, broker: Broker, strict: str
) -> None:
    # Given a queue without letters, whose letters shall live for a minute
    await broker.alter_queue(LETTERS, message_ttl_seconds=60)
    await broker.alter_queue(LETTERS, retention_messages=7)
    config = (await broker.queue_stats(LETTERS)).config
    assert (config.message_ttl_seconds, config.retention_messages) == (60, 7)
    assert (await broker.queue_stats(strict)).dead_letters == 0
    # When one comes, by a lease that ran out, then it lives for so long
    await world.restart()
    await broker.publish(strict, [b"a"])
    await broker.receive(strict)
    await world.pass_time(30)
    assert bodies(await broker.dead_letters(strict)) == [b"a"]
    await world.pass_time(59)
    assert bodies(await broker.dead_letters(strict)) == [b"a"]
    await world.pass_time(2)
    assert await broker.dead_letters(strict) == []


async def test_no_letters_are_made_for_what_cannot_have_any(broker: Broker, strict: str) -> None:
    for name in ("none-dlq", "-dlq", f"{LETTERS}-dlq"):
        with pytest.raises(QueueNotFound):
            await broker.alter_queue(name, message_ttl_seconds=60)
    # Nor by settings that are wrong
    for settings in ({"message_ttl_seconds": -1}, {"events": True}, {"unknown": 1}):
        with pytest.raises(InvalidArgument):
            await broker.alter_queue(LETTERS, **settings)
    assert [stats.name for stats in await broker.stats()] == [strict]
    await broker.alter_queue(LETTERS, message_ttl_seconds=60)
    with pytest.raises(QueueNotFound):
        await broker.alter_queue(f"{LETTERS}-dlq", message_ttl_seconds=60)


async def test_a_purge_of_the_dead_letters_removes_them(broker: Broker, strict: str) -> None:
    await broker.publish(strict, [b"a"])
    await fail(broker)
    await broker.purge_queue(LETTERS)
    assert await broker.dead_letters(strict) == []
    assert await broker.replay(strict) == 0


async def test_letters_of_a_subscription_that_is_gone_stay(broker: Broker, strict: str) -> None:
    await broker.create_subscription(strict, "audit", max_deliveries=1)
    await broker.publish(strict, [b"a"])
    await fail(broker, subscription="audit")
    await broker.delete_subscription(strict, "audit")
    assert await broker.replay(strict) == 0
    assert bodies(await broker.dead_letters(strict)) == [b"a"]
    assert await broker.discard(strict) == 1


async def test_dead_letters_outlive_the_retention_of_both_queues(
    world: World, broker: Broker, strict: str
) -> None:
    # Given two letters, of which the later one is discarded
    published = await broker.publish(strict, [b"a", b"b", b"c"])
    await fail(broker, count=2)
    await broker.ack_up_to(strict, 3)
    await broker.discard(strict, [published[1].id])
    # When their time is long over
    await world.pass_time(1_000_000)
    await world.pass_time(1_000_000)
    # Then the other one is still there, and can be replayed
    assert bodies(await broker.dead_letters(strict)) == [b"a"]
    assert await broker.replay(strict) == 1
    assert bodies(await broker.receive(strict, limit=5)) == [b"a"]


@pytest.mark.parametrize("place", ["ahead", "in flight", "acked"])
async def test_going_back_over_a_dead_letter_leaves_it_nothing_to_bring_back(
    world: World, broker: Broker, strict: str, place: str
) -> None:
    # Given a dead letter, whose message came again by a seek
    await broker.publish(strict, [b"a", b"b"])
    await fail(broker)
    await broker.seek(strict, 0)
    given = [] if place == "ahead" else await broker.receive(strict)
    if place == "acked":
        await broker.ack(strict, given)
    before = await world.stats()
    # When it is replayed, the letter is gone, and nothing else has changed
    assert await broker.replay(strict) == 1
    assert await broker.dead_letters(strict) == []
    assert await world.stats() == before
    # Then the message comes once
    left = [0, 1] if place == "ahead" else [1]
    assert indexes(await broker.receive(strict, limit=5)) == left
    assert await broker.receive(strict, limit=5) == []
    await broker.ack_up_to(strict, 2)
    assert (await world.stats()).ready == 0


async def test_a_letter_that_is_replayed_after_its_time_is_delivered_all_the_same(
    world: World, broker: Broker
) -> None:
    # Given two letters of messages whose time is over, one by its own, one by the queue's
    await broker.create_queue(QUEUE, message_ttl_seconds=60)
    await broker.alter_subscription(QUEUE, "default", max_deliveries=1)
    await broker.publish(QUEUE, [NewMessage(body=b"a", expires_at=world.clock.later(30)), b"b"])
    await fail(broker, count=2)
    await world.pass_time(60)
    # When they are replayed, and somebody else comes
    assert await broker.replay(QUEUE) == 2
    await broker.create_subscription(QUEUE, "audit", start="earliest")
    await world.pass_time(60)
    # Then they are delivered, and if they fail they are letters again
    given = await broker.receive(QUEUE, limit=5)
    assert bodies(given) == [b"a", b"b"]
    await broker.nack(QUEUE, receipts(given))
    assert bodies(await broker.dead_letters(QUEUE)) == [b"a", b"b"]
    assert (await world.stats()).expired == 0


@pytest.mark.over_restarts
async def test_dead_letters_survive_a_restart(world: World, broker: Broker, strict: str) -> None:
    await broker.publish(strict, [b"a", b"b"])
    await fail(broker, count=2, reason="why")
    before = await broker.dead_letters(strict)
    await world.restart()
    assert await broker.dead_letters(strict) == before
    await broker.replay(strict, [before[0].id])
    await world.restart()
    assert bodies(await broker.dead_letters(strict)) == [b"b"]
    assert indexes(await broker.receive(strict, limit=5)) == [0]


@pytest.mark.parametrize("way", ["discarded", "acked", "replayed", "purged"])
async def test_a_message_past_retention_is_kept_until_its_last_letter_is_gone(
    world: World, broker: Broker, way: str
) -> None:
    # Given a message that failed on two subscriptions, in a queue that keeps no history
    await broker.create_queue(QUEUE, retention_messages=0)
    await broker.create_subscription(QUEUE, "b", max_deliveries=1)
    await broker.alter_subscription(QUEUE, "default", max_deliveries=1)
    (published,) = await broker.publish(QUEUE, [b"a"])
    await fail(broker)
    await fail(broker, subscription="b")
    await world.pass_time(1)
    assert (await broker.queue_stats(QUEUE)).messages == 1
    # When one of its letters is done with, the other one still has it
    await broker.ack(LETTERS, await broker.receive(LETTERS))
    assert bodies(await broker.dead_letters(QUEUE)) == [b"a"]
    assert (await broker.queue_stats(QUEUE)).messages == 1
    # When both are, then it is gone
    if way == "discarded":
        await broker.discard(QUEUE)
    elif way == "acked":
        await broker.ack(LETTERS, await broker.receive(LETTERS))
    elif way == "purged":
        await broker.purge_queue(LETTERS)
    else:
        await broker.replay(QUEUE)
        assert await broker.ack(QUEUE, [published.id], "b") == [Outcome.DONE]
    assert (await broker.queue_stats(QUEUE)).messages == 0
    assert await broker.find(QUEUE, [published.id]) == [None]


async def test_an_id_of_another_queue_names_no_letter(broker: Broker, strict: str) -> None:
    await broker.create_queue("other")
    (foreign,) = await broker.publish("other", [b"x"])
    await broker.publish(strict, [b"a"])
    await fail(broker)
    assert await broker.replay(strict, [foreign.id]) == 0
    assert await broker.discard(strict, [foreign.id]) == 0
    assert bodies(await broker.dead_letters(strict)) == [b"a"]


async def test_letters_may_be_leased_for_another_time(
    world: World, broker: Broker, strict: str
) -> None:
    await broker.publish(strict, [b"a"])
    await fail(broker)
    await broker.alter_subscription(LETTERS, "default", lease_seconds=5)
    with pytest.raises(InvalidArgument, match="max_deliveries"):
        await broker.alter_subscription(LETTERS, "default", max_deliveries=3)
    (letter,) = await broker.receive(LETTERS)
    assert letter.deadline == world.clock.later(5)

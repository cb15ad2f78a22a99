"""What a store keeps of callbacks: where they go, and the secrets that sign them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.broker import Broker
from penstock.core.callback import CALLBACK_BACKOFF, Callback, CallbackTarget
from penstock.core.message import NewMessage
from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument, QueueNotFound, SubscriptionNotFound
from penstock.storage import base
from tests.contract.world import World, bodies

HOOK = Callback(url="https://a.example/hook", concurrency=3, cloudevents=True)


async def targets(broker: Broker) -> dict[str, CallbackTarget]:
    return {target.subscription: target for target in await broker.callbacks()}


async def test_a_subscription_keeps_its_callback(broker: Broker, queue: str, world: World) -> None:
    # Given one with a callback and one without
    await broker.create_subscription(queue, "called", callback=HOOK)
    await broker.create_subscription(queue, "pulled")
    # Then its settings have it
    assert (await world.stats("called")).config.callback == HOOK
    assert (await world.stats("pulled")).config.callback is None
    # And only that one is to be called
    assert {name: t.callback for name, t in (await targets(broker)).items()} == {"called": HOOK}


async def test_the_callbacks_of_one_queue_are_found_without_the_others(
    broker: Broker, queue: str
) -> None:
    # Given two queues with callbacks, and one without
    await broker.create_subscription(queue, "called", callback=HOOK)
    await broker.create_subscription(queue, "pulled")
    await broker.create_queue("more")
    await broker.alter_subscription("more", "default", callback=HOOK, paused=True)
    await broker.create_queue("quiet")
    # Then those of each are those that it has among all
    every = await broker.callbacks()
    assert [(one.queue, one.subscription) for one in every] == [
        (queue, "called"),
        ("more", "default"),
    ]
    assert [await broker.callbacks(name) for name in (queue, "more", "quiet", "none")] == [
        every[:1],
        every[1:],
        [],
        [],
    ]


async def test_the_secret_is_given_once_and_shown_nowhere(
    broker: Broker, queue: str, world: World
) -> None:
    secret = (await broker.create_subscription(queue, "called", callback=HOOK)).secret
    assert secret is not None
    assert secret.startswith("whsec_")
    assert (await targets(broker))["called"].secrets == (secret,)
    assert secret.encode() not in msgspec.json.encode(await broker.stats())
    assert secret not in repr(await broker.callbacks())


async def test_a_subscription_without_a_callback_has_no_secret(broker: Broker, queue: str) -> None:
    assert (await broker.create_subscription(queue, "pulled")).secret is None
    with pytest.raises(InvalidArgument, match="no callback"):
        await broker.rotate_secret(queue, "pulled")


async def test_two_secrets_are_live_after_a_rotation(broker: Broker, queue: str) -> None:
    first = (await broker.create_subscription(queue, "called", callback=HOOK)).secret
    second = await broker.rotate_secret(queue, "called")
    assert (await targets(broker))["called"].secrets == (second, first)
    third = await broker.rotate_secret(queue, "called")
    assert (await targets(broker))["called"].secrets == (third, second)


async def test_the_first_callback_of_a_subscription_makes_its_secret(
    broker: Broker, queue: str
) -> None:
    # Given a subscription that was pulled from
    await broker.create_subscription(queue, "later")
    # When it gets a callback, and then another one
    secret = (await broker.alter_subscription(queue, "later", callback=HOOK)).secret
    moved = msgspec.structs.replace(HOOK, url="http://b.example/")
    again = await broker.alter_subscription(queue, "later", callback=moved)
    # Then there is one secret, told the first time
    assert secret is not None
    assert (again.secret, again.config.callback) == (None, moved)
    assert (await targets(broker))["later"].secrets == (secret,)
    assert (await targets(broker))["later"].callback == moved


async def test_a_callback_can_be_taken_away(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "called", callback=HOOK)
    await broker.alter_subscription(queue, "called", callback=None)
    assert await broker.callbacks() == []


async def test_a_callback_is_retried_with_growing_pauses_unless_told_otherwise(
    broker: Broker, queue: str, world: World
) -> None:
    own = Backoff(base_seconds=2)
    await broker.create_subscription(queue, "called", callback=HOOK)
    await broker.create_subscription(queue, "own", callback=HOOK, backoff=own)
    assert (await world.stats("called")).config.backoff == CALLBACK_BACKOFF
    assert (await world.stats("own")).config.backoff == own


async def test_an_ordered_callback_has_one_message_in_flight(
    broker: Broker, queue: str, world: World
) -> None:
    ordered = msgspec.structs.replace(HOOK, ordered=True)
    await broker.create_subscription(queue, "called", callback=ordered)
    await broker.publish(queue, [b"a", b"b"])
    assert len(await broker.receive(queue, subscription="called", limit=9)) == 1
    assert await broker.receive(queue, subscription="called", limit=9) == []


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "whsec_not base64", "A" * 44])
async def test_a_secret_that_signs_nothing_is_refused(
    world: World, broker: Broker, queue: str, secret: str
) -> None:
    await broker.create_subscription(queue, "called", callback=HOOK)
    with pytest.raises(InvalidArgument, match="the secret is not"):
        await world.store.define(
            base.RotateSecret(queue=queue, subscription="called", secret=secret)
        )


@pytest.mark.over_restarts
async def test_callbacks_and_secrets_survive_a_restart(
    broker: Broker, queue: str, world: World
) -> None:
    first = (await broker.create_subscription(queue, "called", callback=HOOK)).secret
    second = await broker.rotate_secret(queue, "called")
    await world.restart()
    assert (await targets(broker))["called"].secrets == (second, first)
    assert (await targets(broker))["called"].callback == HOOK


# Waiting for news.


async def test_news_are_what_was_published_since(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    first = await broker.wait(queue, "default", 1, beyond=0)
    assert first is not None
    stats = await broker.subscription_stats(queue)
    assert (stats.ready, stats.lowest_unacked_index) == (1, 0)
    await broker.ack(queue, await broker.receive(queue))
    await broker.publish(queue, [b"b", b"c"])
    second = await broker.wait(queue, "default", 1, beyond=first)
    assert second is not None
    assert second != first
    stats = await broker.subscription_stats(queue)
    assert (stats.ready, stats.lowest_unacked_index) == (2, 1)


async def test_without_news_the_time_is_up(broker: Broker, queue: str) -> None:
    # Given a message that has been seen, and is still there to be received
    await broker.publish(queue, [b"a"])
    seen = await broker.wait(queue, "default", 1, beyond=0)
    assert seen is not None
    # Then waiting for more comes to nothing
    assert await broker.wait(queue, "default", 0.001, beyond=seen) is None


async def test_what_the_filter_keeps_out_is_no_news(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "some", filter="body.n > 1")
    await broker.publish(queue, [b'{"n": 1}'])
    assert await broker.wait(queue, "some", 0.001, beyond=0) is None


@pytest.mark.within_one_life
async def test_a_publish_wakes_who_waits_for_news(broker: Broker, queue: str) -> None:
    waiting = asyncio.create_task(broker.wait(queue, "default", 60, beyond=0))
    await asyncio.sleep(0)
    await broker.publish(queue, [b"a"])
    assert await asyncio.wait_for(waiting, 30) is not None
    assert (await broker.subscription_stats(queue)).ready == 1


@pytest.mark.within_one_life
async def test_the_ack_of_the_last_parent_is_news_for_who_waits_for_it(
    broker: Broker, queue: str
) -> None:
    # Given a subscription that has seen all there was, and a message that is held for it
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.publish(queue, [b"a"])
    assert await broker.wait(queue, "after", 0.001, beyond=0) is None
    waiting = asyncio.create_task(broker.wait(queue, "after", 60, beyond=0))
    await asyncio.sleep(0)
    # When the other one has it
    await broker.ack(queue, await broker.receive(queue))
    # Then that is news
    assert await asyncio.wait_for(waiting, 30) is not None
    assert (await broker.subscription_stats(queue, "after")).ready == 1


@pytest.mark.within_one_life
async def test_a_lease_that_ended_is_news(broker: Broker, queue: str, world: World) -> None:
    await broker.publish(queue, [b"a"])
    await broker.receive(queue, lease_seconds=5)
    seen = await broker.wait(queue, "default", 1, beyond=0)
    waiting = asyncio.create_task(broker.wait(queue, "default", 60, beyond=seen))
    await asyncio.sleep(0)
    await world.pass_time(6)
    assert await asyncio.wait_for(waiting, 30) not in (None, seen)
    assert (await broker.subscription_stats(queue)).ready == 1


@pytest.mark.within_one_life
async def test_a_message_whose_time_has_come_is_news(
    broker: Broker, queue: str, world: World
) -> None:
    # Given a subscription that has seen all there is: a message that is not due yet
    await broker.publish(queue, [NewMessage(body=b"a", not_before=world.clock.later(5))])
    seen = await broker.wait(queue, "default", 1, beyond=0)
    waiting = asyncio.create_task(broker.wait(queue, "default", 60, beyond=seen))
    await asyncio.sleep(0)
    # When its time has come, that is news
    await world.pass_time(6)
    seen = await asyncio.wait_for(waiting, 30)
    assert (await broker.subscription_stats(queue)).ready == 1
    # And so it is when the wait after a nack is over
    delivered = await broker.receive(queue)
    waiting = asyncio.create_task(broker.wait(queue, "default", 60, beyond=seen))
    await broker.nack(queue, delivered, delay_seconds=5)
    assert not waiting.done()
    await world.pass_time(6)
    assert await asyncio.wait_for(waiting, 30) not in (None, seen)
    assert (await broker.subscription_stats(queue)).ready == 1


@pytest.mark.within_one_life
@pytest.mark.parametrize("filter", [None, "body.n > 0"])
async def test_what_is_sought_back_is_news(broker: Broker, queue: str, filter: str | None) -> None:
    # Given subscriptions that have seen and acked all there is
    await broker.create_subscription(queue, "some", start="earliest", filter=filter)
    await broker.create_subscription(queue, "later", start="earliest", after=["some"])
    await broker.publish(queue, [b'{"n": 1}'])
    for name in ("some", "later"):
        await broker.ack_up_to(queue, 1, name)
        seen = await broker.wait(queue, name, 1, beyond=0)
        waiting = asyncio.create_task(broker.wait(queue, name, 60, beyond=seen))
        await asyncio.sleep(0)
        # When one is sought back, to where it began, then that is news
        await broker.seek(queue, "earliest", name)
        assert await asyncio.wait_for(waiting, 30) not in (None, seen)
        await broker.ack_up_to(queue, 1, name)


@pytest.mark.within_one_life
async def test_who_waits_for_news_of_what_is_deleted_is_woken(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "gone")
    by_subscription = asyncio.create_task(broker.wait(queue, "gone", 60, beyond=0))
    by_queue = asyncio.create_task(broker.wait(queue, "default", 60, beyond=0))
    await asyncio.sleep(0)
    await broker.delete_subscription(queue, "gone")
    await asyncio.wait_for(by_subscription, 30)
    await broker.delete_queue(queue)
    await asyncio.wait_for(by_queue, 30)
    with pytest.raises(QueueNotFound):
        await broker.wait(queue, "default", 1, beyond=0)


async def test_news_of_nothing_are_refused(broker: Broker, queue: str) -> None:
    with pytest.raises(SubscriptionNotFound):
        await broker.wait(queue, "none", 1, beyond=0)


ORDERED = Callback(url="https://a.example/hook", ordered=True)
PATIENT = Backoff(base_seconds=10)


async def test_where_order_is_kept_a_message_in_its_backoff_holds_back_all_later_ones(
    broker: Broker, queue: str, world: World
) -> None:
    # Given an ordered subscription whose first message failed
    await broker.create_subscription(queue, "called", callback=ORDERED, backoff=PATIENT)
    await broker.publish(queue, [b"a", b"b"])
    (given,) = await broker.receive(queue, subscription="called", limit=5)
    await broker.nack(queue, [given.receipt], subscription="called")
    # Then nothing is given before its backoff is over, whatever happens in between
    for _ in range(2):
        assert await broker.receive(queue, subscription="called") == []
        assert await broker.poll(queue, "called", start=0, count=5) == []
        await world.pass_time(4)
    await world.pass_time(2)
    # And then it is given first, as a second delivery
    (again,) = await broker.receive(queue, subscription="called", limit=5)
    assert (again.body, again.deliveries) == (b"a", 2)
    await broker.ack(queue, [again.receipt], "called")
    assert bodies(await broker.receive(queue, subscription="called")) == [b"b"]


async def test_a_delay_that_a_publisher_wants_holds_back_nobody_where_order_is_kept(
    broker: Broker, queue: str, world: World
) -> None:
    await broker.create_subscription(queue, "called", callback=ORDERED, backoff=PATIENT)
    await broker.publish(queue, [NewMessage(body=b"late", not_before=world.clock.later(100)), b"b"])
    assert bodies(await broker.receive(queue, subscription="called")) == [b"b"]

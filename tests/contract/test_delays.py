from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import InvalidArgument
from tests.contract.world import World, bodies, indexes, receipts


async def test_a_message_is_not_delivered_before_its_time(
    world: World, broker: Broker, queue: str
) -> None:
    # Given one message for later and one for now
    later = NewMessage(body=b"later", not_before=world.clock.later(10))
    await broker.publish(queue, [later, b"now"])
    # Then the second goes first
    assert bodies(await broker.receive(queue, limit=5)) == [b"now"]
    stats = await world.stats()
    assert (stats.delayed, stats.in_flight, stats.ready) == (1, 1, 0)
    # And the other one once its time has come, not a moment earlier
    world.clock.advance(9.999)
    assert await broker.receive(queue) == []
    world.clock.advance(0.001)
    assert bodies(await broker.receive(queue)) == [b"later"]


@pytest.mark.parametrize("seconds", [5, 10])
async def test_a_message_has_to_expire_after_it_is_due(
    world: World, broker: Broker, queue: str, seconds: float
) -> None:
    due, ends = world.clock.later(10), world.clock.later(seconds)
    with pytest.raises(InvalidArgument, match="later expires_at"):
        await broker.publish(
            queue, [b"with it", NewMessage(body=b"never", not_before=due, expires_at=ends)]
        )
    assert await broker.read(queue) == []


async def test_a_time_that_has_passed_is_no_delay(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [NewMessage(body=b"a", not_before=world.clock.now)])
    assert bodies(await broker.receive(queue)) == [b"a"]


@pytest.mark.parametrize(
    ("settings", "setting", "longest"),
    [
        ({"message_ttl_seconds": 10}, "message_ttl_seconds", 9.999),
        ({"message_ttl_seconds": 10, "retention_seconds": 5}, "message_ttl_seconds", 9.999),
        ({"retention_seconds": 10, "retain_unsettled": False}, "retention_seconds", 10),
    ],
)
async def test_a_message_that_would_expire_before_it_is_due_is_refused(
    world: World, broker: Broker, settings: dict[str, Any], setting: str, longest: float
) -> None:
    # Given a queue whose messages do not live for ever
    await broker.create_queue("jobs", **settings)
    # When one is to be delivered after its end
    late = NewMessage(body=b"late", not_before=world.clock.later(longest + 0.001), dedup_key="k")
    with pytest.raises(InvalidArgument, match=f"raise {setting} of queue 'jobs'"):
        await broker.publish("jobs", [b"with it", late])
    # Then nothing was stored, and it can be published for an earlier time
    assert await broker.read("jobs") == []
    soon = NewMessage(body=b"soon", not_before=world.clock.later(longest), dedup_key="k")
    await broker.publish("jobs", [soon])
    await world.pass_time(longest)
    assert bodies(await broker.receive("jobs")) == [b"soon"]


@pytest.mark.within_one_life
async def test_what_is_refused_for_its_delay_does_not_affect_what_comes_with_it(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", message_ttl_seconds=10)
    late = NewMessage(body=b"late", not_before=world.clock.later(10))
    first, refused, last = await asyncio.gather(
        broker.publish("jobs", [b"first"]),
        broker.publish("jobs", [late]),
        broker.publish("jobs", [b"last"]),
        return_exceptions=True,
    )
    assert isinstance(refused, InvalidArgument)
    assert not isinstance(first, BaseException)
    assert not isinstance(last, BaseException)
    assert bodies(await broker.read("jobs")) == [b"first", b"last"]


@pytest.mark.over_restarts
async def test_a_message_that_was_published_is_the_same_when_the_queue_keeps_it_for_less(
    world: World, broker: Broker
) -> None:
    # Given a message that was scheduled when the queue kept it for long enough
    await broker.create_queue("jobs", message_ttl_seconds=100)
    later = NewMessage(body=b"later", not_before=world.clock.later(50), dedup_key="k")
    (first,) = await broker.publish("jobs", [later], idempotency_key="once")
    await broker.alter_queue("jobs", message_ttl_seconds=20)
    # Then it is there after a restart, and sent again it is the same
    await world.restart()
    (again,) = await broker.publish("jobs", [later], idempotency_key="once")
    (same,) = await broker.publish("jobs", [later])
    assert (again.id, same.id) == (first.id, first.id)
    assert (await world.stats()).delayed == 1


async def test_a_message_may_be_scheduled_far_ahead(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.alter_queue(queue, retention_seconds=None)
    years = 50 * 365 * 86_400
    await broker.publish(queue, [NewMessage(body=b"a", not_before=world.clock.later(years))])
    await world.pass_time(years - 1)
    assert await broker.receive(queue) == []
    await world.pass_time(1)
    assert bodies(await broker.receive(queue)) == [b"a"]


async def test_a_delayed_message_keeps_its_priority(
    world: World, broker: Broker, queue: str
) -> None:
    soon = world.clock.later(5)
    await broker.publish(
        queue,
        [
            b"plain",
            NewMessage(body=b"high", priority=9, not_before=soon),
            NewMessage(body=b"low", priority=1, not_before=soon),
        ],
    )
    world.clock.advance(5)
    assert bodies(await broker.receive(queue, limit=5)) == [b"high", b"low", b"plain"]


async def test_a_delay_counts_for_every_subscription(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "audit", filter='topic == "t"')
    message = NewMessage(body=b"a", topic="t", not_before=world.clock.later(5))
    await broker.publish(queue, [message])
    assert await broker.receive(queue, subscription="audit") == []
    world.clock.advance(5)
    assert bodies(await broker.receive(queue, subscription="audit")) == [b"a"]
    assert bodies(await broker.receive(queue)) == [b"a"]


async def test_a_message_expires_at_its_own_time(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [NewMessage(body=b"a", expires_at=world.clock.later(10)), b"b"])
    world.clock.advance(10)
    assert bodies(await broker.receive(queue, limit=5)) == [b"b"]
    stats = await world.stats()
    assert (stats.expired, stats.dead_lettered) == (1, 0)


async def test_a_message_that_is_in_flight_expires_only_if_it_fails(
    world: World, broker: Broker, queue: str
) -> None:
    # Given two messages in flight when they expire
    expires_at = world.clock.later(10)
    await broker.publish(
        queue, [NewMessage(body=b, expires_at=expires_at) for b in (b"a", b"b", b"c")]
    )
    given = await broker.receive(queue, limit=3, lease_seconds=20)
    await world.pass_time(10)
    assert (await world.stats()).in_flight == 3
    # When one is acked, one is nacked and one is forgotten
    await broker.ack(queue, receipts(given)[:1])
    await broker.nack(queue, receipts(given)[1:2])
    await world.pass_time(10)
    # Then the first counts as done, and the others have expired
    stats = await world.stats()
    assert (stats.acked, stats.expired, stats.ready, stats.in_flight) == (1, 2, 0, 0)


async def test_a_message_expires_while_it_is_delayed_parked_or_held(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", fifo=True)
    await broker.create_subscription("jobs", "after", after=["default"])
    clock = world.clock
    await broker.publish(
        "jobs",
        [
            NewMessage(body=b"delayed", expires_at=clock.later(5)),
            NewMessage(body=b"head", group_key="g"),
            NewMessage(body=b"parked", group_key="g", expires_at=clock.later(5)),
            NewMessage(body=b"next", group_key="g"),
        ],
    )
    delayed, *given = await broker.receive("jobs", limit=5)
    assert bodies(given) == [b"head"]
    await broker.nack("jobs", receipts([delayed]), delay_seconds=50)
    await world.pass_time(5)
    stats, held = await world.stats(), await world.stats("after")
    assert (stats.expired, stats.delayed, stats.parked) == (2, 0, 1)
    assert (held.expired, held.held) == (2, 2)
    await broker.ack("jobs", receipts(given))
    assert bodies(await broker.receive("jobs", limit=5)) == [b"next"]


async def test_a_queue_may_give_every_message_the_same_time_to_live(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", message_ttl_seconds=10)
    await broker.publish("jobs", [b"old"])
    await world.pass_time(6)
    await broker.publish("jobs", [b"new"])
    await world.pass_time(4)
    assert bodies(await broker.receive("jobs", limit=5)) == [b"new"]
    assert (await world.stats()).expired == 1


async def test_the_earlier_of_both_expiries_counts(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", message_ttl_seconds=10)
    await broker.publish("jobs", [NewMessage(body=b"a", expires_at=world.clock.later(5))])
    await broker.publish("jobs", [NewMessage(body=b"b", expires_at=world.clock.later(50))])
    await world.pass_time(5)
    assert (await world.stats()).expired == 1
    await world.pass_time(5)
    assert (await world.stats()).expired == 2


async def test_a_message_kept_past_retention_lives_as_long_as_its_time_to_live(
    world: World, broker: Broker
) -> None:
    # Given a queue that keeps no history
    await broker.create_queue("jobs", message_ttl_seconds=100, retention_messages=0)
    await broker.publish("jobs", [b"a", b"b"])
    await world.pass_time(1)
    # Then an unsettled message is still there
    (given,) = await broker.receive("jobs", lease_seconds=1000)
    # Until its time is over; one that is in flight expires when it fails
    await world.pass_time(99)
    assert await broker.receive("jobs", limit=5) == []
    await broker.nack("jobs", [given.receipt])
    assert await broker.receive("jobs", limit=5) == []
    assert (await world.stats()).expired == 2


async def test_a_message_kept_past_retention_lives_as_long_as_the_queue_says_by_then(
    world: World, broker: Broker
) -> None:
    # Given messages past retention, one of which expires by itself, and one of which is dead
    await broker.create_queue("jobs", retention_messages=0, message_ttl_seconds=10)
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    own = NewMessage(body=b"own", expires_at=world.clock.later(40))
    await broker.publish("jobs", [b"dead", b"plain", own])
    (failed,) = await broker.receive("jobs")
    await broker.nack("jobs", [failed])
    await world.pass_time(5)
    assert (await broker.queue_stats("jobs")).first_index == 3
    # When they are to live longer, and even forever, they do
    await broker.alter_queue("jobs", message_ttl_seconds=30)
    await world.pass_time(24.999)
    assert (await world.stats()).ready == 2
    await broker.alter_queue("jobs", message_ttl_seconds=None)
    await broker.publish("jobs", [b"new"])
    await world.pass_time(10)
    # But no longer than they said themselves
    assert (await world.stats()).ready == 3
    await world.pass_time(0.001)
    assert (await world.stats()).expired == 1
    # And when they are to live shorter, they do, except who was replayed after that
    await broker.alter_queue("jobs", message_ttl_seconds=20)
    await broker.replay("jobs")
    await world.pass_time(9.998)
    assert bodies(await broker.receive("jobs", limit=5)) == [b"dead", b"new"]
    assert (await world.stats()).expired == 2


async def test_a_longer_time_to_live_also_counts_for_what_had_none_left(
    world: World, broker: Broker
) -> None:
    # Given a message in flight and a dead letter, whose time is over
    await broker.create_queue("jobs", message_ttl_seconds=10)
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"in flight", b"dead"])
    given, failed = await broker.receive("jobs", limit=2, lease_seconds=1000)
    await broker.nack("jobs", [failed])
    await world.pass_time(15)
    # When they get more, and then come back
    await broker.alter_queue("jobs", message_ttl_seconds=100)
    await broker.give_back("jobs", [given])
    await broker.replay("jobs")
    await world.pass_time(84.999)
    assert (await world.stats()).ready == 2
    # Then they live that long, and no longer
    await world.pass_time(0.001)
    assert (await world.stats()).expired == 2


async def test_who_goes_back_in_time_does_not_get_what_has_expired(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", message_ttl_seconds=10)
    await broker.publish("jobs", [b"old"])
    await world.pass_time(10)
    await broker.publish("jobs", [b"new"])
    await broker.seek("jobs", "earliest")
    await broker.create_subscription("jobs", "late", start="earliest")
    assert indexes(await broker.receive("jobs", limit=5)) == [1]
    assert indexes(await broker.receive("jobs", subscription="late", limit=5)) == [1]


async def test_nor_what_has_expired_by_itself(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [NewMessage(body=b"old", expires_at=world.clock.later(10))])
    await world.pass_time(10)
    await broker.publish(queue, [b"new"])
    await broker.seek(queue, "earliest")
    assert indexes(await broker.receive(queue, limit=5)) == [1]
    await broker.create_subscription(queue, "late", start="earliest")
    assert indexes(await broker.receive(queue, subscription="late", limit=5)) == [1]


@pytest.mark.parametrize("seconds", [5, 50])
async def test_what_is_in_flight_expires_when_it_fails_after_the_earlier_of_both(
    world: World, broker: Broker, seconds: int
) -> None:
    await broker.create_queue("jobs", message_ttl_seconds=10)
    over = world.clock.later(seconds)
    await broker.publish("jobs", [NewMessage(body=b"%d" % n, expires_at=over) for n in range(4)])
    given = await broker.receive("jobs", limit=4, lease_seconds=1000)
    # While there is time, they come again
    await world.pass_time(min(seconds, 10) - 0.001)
    await broker.nack("jobs", [given[0]])
    await broker.give_back("jobs", [given[1]])
    assert (await world.stats()).ready == 2
    # Afterwards they do not
    await world.pass_time(0.001)
    assert (await world.stats()).expired == 2
    await broker.nack("jobs", [given[2]])
    await broker.give_back("jobs", [given[3]])
    assert (await world.stats()).expired == 4


async def test_an_expired_message_does_not_hold_back_its_group(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", fifo=True)
    first = NewMessage(body=b"a", group_key="g", expires_at=world.clock.later(5))
    await broker.publish("jobs", [first, NewMessage(body=b"b", group_key="g")])
    world.clock.advance(5)
    assert bodies(await broker.receive("jobs", limit=5)) == [b"b"]

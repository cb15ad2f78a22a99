"""Delivery by index range: ``(max(sent, i), min(acked + cap, i + x)]`` of the numbers sent."""

from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import (
    InvalidArgument,
    MessageNotFound,
    NotLeased,
    QueueNotFound,
    SubscriptionNotFound,
)
from tests.contract.world import World, bodies, indexes, receipts


async def poll(broker: Broker, queue: str, start: int, count: int) -> list[int]:
    return indexes(await broker.poll(queue, "default", start=start, count=count))


async def publish(broker: Broker, queue: str, count: int) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(count)])


async def test_a_poll_gives_the_messages_of_its_range(broker: Broker, queue: str) -> None:
    await publish(broker, queue, 10)
    assert await poll(broker, queue, 0, 3) == [0, 1, 2]
    assert await poll(broker, queue, 3, 2) == [3, 4]


async def test_what_was_sent_is_not_sent_again_by_an_overlapping_range(
    broker: Broker, queue: str
) -> None:
    await publish(broker, queue, 10)
    await poll(broker, queue, 0, 5)
    assert await poll(broker, queue, 3, 5) == [5, 6, 7]
    assert await poll(broker, queue, 0, 8) == []
    assert await poll(broker, queue, 0, 9) == [8]


async def test_the_counter_of_what_was_sent_moves_to_the_end_of_the_range(
    world: World, broker: Broker, queue: str
) -> None:
    await publish(broker, queue, 10)
    for start, count, cursor in ((0, 4, 4), (2, 1, 4), (1, 5, 6), (8, 1, 9), (8, 100, 10)):
        await poll(broker, queue, start, count)
        assert (await world.stats()).cursor == cursor


async def test_a_range_that_skips_ahead_leaves_the_gap_for_others(
    world: World, broker: Broker, queue: str
) -> None:
    await publish(broker, queue, 10)
    assert await poll(broker, queue, 6, 2) == [6, 7]
    # The counter has passed the gap, so a poll does not give it any more
    assert await poll(broker, queue, 0, 5) == []
    # But nothing is lost: it is ready, and can be asked for by index
    assert (await broker.ask_again(queue, "default", 2)).index == 2
    assert indexes(await broker.receive(queue, limit=3)) == [0, 1, 3]
    assert (await world.stats()).lowest_unacked_index == 0


async def test_no_more_than_the_cap_is_sent_beyond_what_was_acked(
    broker: Broker, queue: str
) -> None:
    await broker.alter_subscription(queue, "default", max_in_flight=4)
    await publish(broker, queue, 10)
    given = await broker.poll(queue, "default", start=0, count=10)
    assert indexes(given) == [0, 1, 2, 3]
    assert await poll(broker, queue, 4, 10) == []
    # An ack in the middle moves nothing: the counter of acks is the lowest un-acked index
    await broker.ack(queue, receipts(given)[1:3])
    assert await poll(broker, queue, 4, 10) == []
    await broker.ack(queue, receipts(given)[:1])
    assert await poll(broker, queue, 4, 10) == [4, 5, 6]


async def test_acks_may_come_later_and_for_many_at_once(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_in_flight=4)
    await publish(broker, queue, 10)
    await poll(broker, queue, 0, 4)
    assert await broker.ack_up_to(queue, 4) == 4
    assert await poll(broker, queue, 4, 10) == [4, 5, 6, 7]


async def test_a_poll_does_not_wait_and_past_the_end_there_is_nothing(
    world: World, broker: Broker, queue: str
) -> None:
    await publish(broker, queue, 2)
    assert await poll(broker, queue, 5, 5) == []
    assert (await world.stats()).cursor == 0
    assert await poll(broker, queue, 0, 100) == [0, 1]
    assert await poll(broker, queue, 2, 100) == []
    await publish(broker, queue, 1)
    assert await poll(broker, queue, 2, 100) == [2]


async def test_every_subscriber_has_its_own_counters(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "other")
    await publish(broker, queue, 4)
    assert await poll(broker, queue, 0, 4) == [0, 1, 2, 3]
    assert indexes(await broker.poll(queue, "other", start=0, count=2)) == [0, 1]


async def test_a_receive_moves_the_same_counter(broker: Broker, queue: str) -> None:
    await publish(broker, queue, 6)
    await broker.receive(queue, limit=2)
    assert await poll(broker, queue, 0, 4) == [2, 3]
    assert indexes(await broker.receive(queue, limit=9)) == [4, 5]


async def test_a_range_ends_before_a_message_that_may_not_go_yet(
    world: World, broker: Broker, queue: str
) -> None:
    late = NewMessage(body=b"late", not_before=world.clock.later(5))
    await broker.publish(queue, [b"0", late, b"2"])
    assert await poll(broker, queue, 0, 10) == [0]
    assert await poll(broker, queue, 0, 10) == []
    world.clock.advance(5)
    assert await poll(broker, queue, 0, 10) == [1, 2]


async def test_a_message_that_is_in_flight_does_not_end_a_range(
    world: World, broker: Broker, queue: str
) -> None:
    urgent = NewMessage(body=b"urgent", priority=9, not_before=world.clock.later(1))
    await broker.publish(queue, [b"0", urgent, b"2"])
    world.clock.advance(1)
    assert bodies(await broker.receive(queue)) == [b"urgent"]
    assert await poll(broker, queue, 0, 10) == [0, 2]


async def test_who_waits_for_others_polls_what_they_have_taken(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    await publish(broker, queue, 4)
    assert await broker.poll(queue, "after", start=0, count=9) == []
    await broker.ack_up_to(queue, 2)
    assert indexes(await broker.poll(queue, "after", start=0, count=9)) == [0, 1]
    await broker.ack_up_to(queue, 3)
    assert indexes(await broker.poll(queue, "after", start=0, count=9)) == [2]


async def test_a_poll_skips_what_the_filter_keeps_out(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    red = NewMessage(body=b"red", topic="red")
    await broker.publish(queue, [b"0", red, b"2", red, b"4"])
    assert indexes(await broker.poll(queue, "reds", start=0, count=4)) == [1, 3]
    assert (await world.stats("reds")).cursor == 4


async def test_a_poll_never_exceeds_the_cap_together_with_receives(
    broker: Broker, queue: str
) -> None:
    await broker.alter_subscription(queue, "default", max_in_flight=2)
    await broker.publish(queue, [b"0", b"1", NewMessage(body=b"2", priority=9), b"3"])
    assert indexes(await broker.receive(queue)) == [2]
    assert indexes(await broker.poll(queue, "default", start=0, count=9)) == []
    assert indexes(await broker.receive(queue, limit=9)) == [0]
    assert indexes(await broker.receive(queue, limit=9)) == []


async def test_what_was_received_out_of_turn_counts_for_the_cap_of_a_poll(
    world: World, broker: Broker, queue: str
) -> None:
    # Given a cap of two, and a message behind the others that was received before them
    await broker.alter_subscription(queue, "default", max_in_flight=2)
    urgent = NewMessage(body=b"urgent", priority=9, not_before=world.clock.later(1))
    await broker.publish(queue, [b"0", b"1", urgent])
    world.clock.advance(1)
    given = await broker.receive(queue)
    assert bodies(given) == [b"urgent"]
    # Then a poll gives no more than one
    assert await poll(broker, queue, 0, 9) == [0]
    assert await poll(broker, queue, 0, 9) == []
    # And the next one when there is room again
    await broker.ack(queue, receipts(given))
    assert await poll(broker, queue, 0, 9) == [1]


async def test_a_poll_needs_an_existing_queue_and_subscriber(broker: Broker, queue: str) -> None:
    with pytest.raises(QueueNotFound):
        await broker.poll("none", "default", start=0, count=1)
    with pytest.raises(SubscriptionNotFound):
        await broker.poll(queue, "none", start=0, count=1)
    for start, count in ((-1, 1), (0, 0)):
        with pytest.raises(InvalidArgument):
            await broker.poll(queue, "default", start=start, count=count)


async def test_one_particular_message_can_be_asked_for_again(
    world: World, broker: Broker, queue: str
) -> None:
    await publish(broker, queue, 3)
    given = await broker.poll(queue, "default", start=0, count=3)
    again = await broker.ask_again(queue, "default", 1)
    assert (again.index, again.deliveries) == (1, 2)
    # The delivery before it is void, and there is one lease
    outcomes = await broker.ack(queue, [given[1].receipt, again.receipt])
    assert [outcome.value for outcome in outcomes] == ["not_leased", "done"]
    assert (await world.stats()).in_flight == 2


async def test_a_message_that_waits_out_its_backoff_can_be_asked_for(
    broker: Broker, queue: str
) -> None:
    await publish(broker, queue, 1)
    (given,) = await broker.receive(queue)
    await broker.nack(queue, [given.receipt], delay_seconds=600)
    assert (await broker.ask_again(queue, "default", 0)).deliveries == 2


async def test_what_was_not_given_or_is_settled_cannot_be_asked_for(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    await publish(broker, queue, 3)
    (given,) = await broker.receive(queue)
    await broker.ack(queue, [given.receipt])
    for index in (0, 1):
        with pytest.raises(NotLeased):
            await broker.ask_again(queue, "default", index)
    with pytest.raises(MessageNotFound):
        await broker.ask_again(queue, "default", 3)
    with pytest.raises(MessageNotFound):
        await broker.ask_again(queue, "reds", 0)


async def test_nothing_can_be_asked_for_while_paused(broker: Broker, queue: str) -> None:
    await publish(broker, queue, 1)
    await broker.receive(queue)
    await broker.pause(queue)
    with pytest.raises(NotLeased):
        await broker.ask_again(queue, "default", 0)


@pytest.mark.over_restarts
async def test_the_counters_survive_a_restart(world: World, broker: Broker, queue: str) -> None:
    await publish(broker, queue, 10)
    await poll(broker, queue, 2, 3)
    before = await broker.stats()
    await world.restart()
    assert await broker.stats() == before
    assert await poll(broker, queue, 0, 7) == [5, 6]
    assert indexes(await broker.receive(queue, limit=3)) == [0, 1, 7]

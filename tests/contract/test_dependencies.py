from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import InvalidDependency, MessageNotFound, NotHeld
from tests.contract.world import World, bodies, indexes, receipts


async def take(broker: Broker, queue: str, name: str) -> list[int]:
    """Receive everything on a subscription and ack it."""
    given = await broker.receive(queue, subscription=name, limit=100)
    await broker.ack(queue, receipts(given), name)
    return indexes(given)


async def fail(broker: Broker, queue: str, name: str) -> list[int]:
    given = await broker.receive(queue, subscription=name, limit=100)
    await broker.nack(queue, receipts(given), name, reason="no luck")
    return indexes(given)


async def test_a_message_is_given_once_the_others_have_acked_it(
    world: World, broker: Broker, queue: str
) -> None:
    # Given C, which waits for A and B
    await broker.create_subscription(queue, "A")
    await broker.create_subscription(queue, "B")
    await broker.create_subscription(queue, "C", after=["A", "B"])
    await broker.publish(queue, [b"a", b"b"])
    assert await broker.receive(queue, subscription="C", limit=9) == []
    assert (await world.stats("C")).held == 2
    assert await broker.held(queue, "C") == [0, 1]
    # When A has taken both, and B the second alone
    await take(broker, queue, "A")
    given = await broker.receive(queue, subscription="B", limit=9)
    assert await broker.receive(queue, subscription="C", limit=9) == []
    await broker.ack(queue, [given[1].receipt], "B")
    # Then C gets that one: a slow message holds back itself alone
    assert await take(broker, queue, "C") == [1]
    assert await broker.held(queue, "C") == [0]
    await broker.ack(queue, [given[0].receipt], "B")
    assert await take(broker, queue, "C") == [0]


async def test_being_in_flight_or_nacked_elsewhere_is_not_enough(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.publish(queue, [b"a"])
    (given,) = await broker.receive(queue)
    assert await take(broker, queue, "after") == []
    await broker.nack(queue, [given.receipt])
    assert await take(broker, queue, "after") == []
    world.clock.advance(100)
    assert await take(broker, queue, "default") == [0]
    assert await take(broker, queue, "after") == [0]


async def test_what_the_filter_of_another_keeps_out_need_not_be_waited_for(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    await broker.create_subscription(queue, "after", after=["reds"])
    await broker.publish(queue, [b"plain", NewMessage(body=b"red", topic="red")])
    assert await take(broker, queue, "after") == [0]
    await take(broker, queue, "reds")
    assert await take(broker, queue, "after") == [1]


async def test_a_filter_of_its_own_still_counts(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"], filter='topic == "red"')
    await broker.publish(queue, [b"plain", NewMessage(body=b"red", topic="red")])
    await take(broker, queue, "default")
    assert await take(broker, queue, "after") == [1]


async def test_a_diamond_runs_from_top_to_bottom(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "A")
    for name, after in (("B", ["A"]), ("C", ["A"]), ("D", ["B", "C"])):
        await broker.create_subscription(queue, name, after=after)
    await broker.publish(queue, [b"%d" % n for n in range(3)])
    for name in ("B", "C", "D"):
        assert await take(broker, queue, name) == []
    assert await take(broker, queue, "A") == [0, 1, 2]
    assert await take(broker, queue, "D") == []
    assert await take(broker, queue, "B") == [0, 1, 2]
    assert await take(broker, queue, "D") == []
    assert await take(broker, queue, "C") == [0, 1, 2]
    assert await take(broker, queue, "D") == [0, 1, 2]


async def test_priority_delay_and_groups_count_for_who_waits(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", fifo=True)
    await broker.create_subscription("jobs", "after", after=["default"])
    await broker.publish(
        "jobs",
        [
            NewMessage(body=b"0", group_key="g"),
            NewMessage(body=b"1", group_key="g"),
            NewMessage(body=b"2", priority=9),
            NewMessage(body=b"3", not_before=world.clock.later(5)),
        ],
    )
    await broker.ack_up_to("jobs", 4)
    given = await broker.receive("jobs", subscription="after", limit=9)
    assert bodies(given) == [b"2", b"0"]
    world.clock.advance(5)
    assert bodies(await broker.receive("jobs", subscription="after", limit=9)) == [b"3"]
    await broker.ack("jobs", receipts(given), "after")
    assert bodies(await broker.receive("jobs", subscription="after", limit=9)) == [b"1"]


@pytest.mark.parametrize("after", [["none"], ["self"], ["default", "default"], ["default", "none"]])
async def test_an_unknown_own_or_repeated_name_is_refused(
    broker: Broker, queue: str, after: list[str]
) -> None:
    with pytest.raises(InvalidDependency):
        await broker.create_subscription(queue, "self", after=after)
    await broker.create_subscription(queue, "self")
    with pytest.raises(InvalidDependency):
        await broker.alter_subscription(queue, "self", after=after)


async def test_a_cycle_is_refused_when_it_is_declared(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A")
    await broker.create_subscription(queue, "B", after=["A"])
    await broker.create_subscription(queue, "C", after=["B"])
    with pytest.raises(InvalidDependency, match="A after C after B after A"):
        await broker.alter_subscription(queue, "A", after=["C"])
    assert (await world.stats("A")).config.after == ()


# What a dead letter means to those who wait


async def test_hold_waits_until_the_replay_is_acked(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "after", after=["A"])
    await broker.publish(queue, [b"a", b"b"])
    given = await broker.receive(queue, subscription="A", limit=9)
    await broker.nack(queue, [given[0].receipt], "A")
    await broker.ack(queue, [given[1].receipt], "A")
    assert await take(broker, queue, "after") == [1]
    await broker.replay(queue)
    assert await take(broker, queue, "after") == []
    await take(broker, queue, "A")
    assert await take(broker, queue, "after") == [0]


async def test_a_discarded_letter_is_waited_for_until_an_operator_releases_it(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "after", after=["A"])
    await broker.publish(queue, [b"a"])
    await fail(broker, queue, "A")
    await broker.discard(queue)
    assert await take(broker, queue, "after") == []
    await broker.release(queue, "after", [0])
    assert await take(broker, queue, "after") == [0]


async def test_only_what_is_held_can_be_released(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.publish(queue, [b"a", b"b"])
    await broker.release(queue, "after", [1])
    assert await take(broker, queue, "after") == [1]
    for call in (broker.release(queue, "after", [1]), broker.release(queue, "default", [0])):
        with pytest.raises(NotHeld):
            await call
    with pytest.raises(MessageNotFound):
        await broker.release(queue, "after", [0, 7])
    assert await broker.held(queue, "after") == [0]
    # Nor can what it may have already, or has
    await take(broker, queue, "default")
    with pytest.raises(NotHeld):
        await broker.release(queue, "after", [0])
    assert indexes(await broker.receive(queue, subscription="after")) == [0]
    with pytest.raises(NotHeld):
        await broker.release(queue, "after", [0])
    # Nor what was acked while it was held
    (published,) = await broker.publish(queue, [b"c"])
    await broker.ack(queue, [published.id], "after")
    with pytest.raises(NotHeld):
        await broker.release(queue, "after", [2])


async def test_cascade_makes_it_a_dead_letter_of_all_who_wait(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "B", after=["A"], on_dead_parent="cascade")
    await broker.create_subscription(queue, "C", after=["B"], on_dead_parent="cascade")
    await broker.publish(queue, [b"a"])
    await fail(broker, queue, "A")
    letters = [m.dead_letter for m in await broker.dead_letters(queue)]
    assert [(d.subscription, d.deliveries, d.reason) for d in letters if d] == [
        ("A", 1, "no luck"),
        ("B", 0, "dead-lettered by A"),
        ("C", 0, "dead-lettered by B"),
    ]
    # A replay of all puts each back where it was, and the order still holds
    assert await broker.replay(queue) == 3
    assert await take(broker, queue, "C") == await take(broker, queue, "B") == []
    assert await take(broker, queue, "A") == [0]
    assert await take(broker, queue, "B") == [0]
    assert await take(broker, queue, "C") == [0]


async def test_ignore_goes_on_as_if_it_had_been_acked(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "after", after=["A"], on_dead_parent="ignore")
    await broker.publish(queue, [b"a"])
    await fail(broker, queue, "A")
    assert await take(broker, queue, "after") == [0]


async def test_a_change_of_mind_about_dead_letters_takes_effect_at_once(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "one", after=["A"])
    await broker.create_subscription(queue, "two", after=["A"])
    await broker.publish(queue, [b"a"])
    await fail(broker, queue, "A")
    await broker.alter_subscription(queue, "one", on_dead_parent="ignore")
    assert await take(broker, queue, "one") == [0]
    await broker.alter_subscription(queue, "two", on_dead_parent="cascade")
    letters = [m.dead_letter for m in await broker.dead_letters(queue)]
    assert [letter.subscription for letter in letters if letter] == ["A", "two"]


async def test_a_dead_letter_from_before_cascades_to_who_comes_later(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "old", after=["default"], on_dead_parent="cascade")
    await broker.publish(queue, [b"a"])
    await fail(broker, queue, "A")
    await broker.create_subscription(
        queue, "new", after=["A"], on_dead_parent="cascade", start="earliest"
    )
    await broker.alter_subscription(queue, "old", after=["A"])
    letters = [m.dead_letter for m in await broker.dead_letters(queue)]
    assert [letter.subscription for letter in letters if letter] == ["A", "new", "old"]


# Changing who waits for whom


async def test_removing_a_parent_releases_what_waited_for_it_alone(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A")
    await broker.create_subscription(queue, "B")
    await broker.create_subscription(queue, "C", after=["A", "B"])
    published = await broker.publish(queue, [b"a", b"b"])
    await broker.ack(queue, [published[0].id], "B")
    await broker.delete_subscription(queue, "A")
    assert await take(broker, queue, "C") == [0]
    await broker.delete_subscription(queue, "B")
    assert await take(broker, queue, "C") == [1]
    await broker.publish(queue, [b"c"])
    assert await take(broker, queue, "C") == [2]


async def test_a_new_parent_is_waited_for_from_now_on(
    world: World, broker: Broker, queue: str
) -> None:
    # Given one message done, one in flight, one nacked and one not yet given
    await broker.create_subscription(queue, "A")
    await broker.publish(queue, [b"%d" % n for n in range(4)])
    given = await broker.receive(queue, limit=3)
    await broker.ack(queue, [given[0].receipt])
    await broker.nack(queue, [given[2].receipt])
    # When the subscription shall wait for another one
    await broker.alter_subscription(queue, "default", after=["A"])
    # Then what was given before stays as it is, and the rest waits
    assert await broker.held(queue, "default") == [3]
    assert indexes(await broker.receive(queue, limit=9)) == [2]
    world.clock.advance(30)
    assert indexes(await broker.receive(queue, limit=9)) == [1, 2]
    await broker.ack(queue, [(await broker.read(queue))[3].id], "A")
    assert indexes(await broker.receive(queue, limit=9)) == [3]


async def test_a_replayed_letter_waits_for_the_parents_of_now(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "B")
    await broker.create_subscription(queue, "C", after=["A"], on_dead_parent="cascade")
    await broker.publish(queue, [b"a"])
    await fail(broker, queue, "A")
    await broker.alter_subscription(queue, "C", after=["A", "B"])
    await broker.replay(queue)
    assert await take(broker, queue, "C") == []
    await take(broker, queue, "A")
    assert await take(broker, queue, "C") == []
    await take(broker, queue, "B")
    assert await take(broker, queue, "C") == [0]


async def test_ack_up_to_leaves_what_is_held(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    published = await broker.publish(queue, [b"a", b"b", b"c"])
    await broker.ack(queue, [published[1].id])
    assert await broker.ack_up_to(queue, 3, "after") == 1
    assert await broker.held(queue, "after") == [0, 2]


async def test_a_parent_that_skips_messages_lets_them_pass(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.publish(queue, [b"a", b"b"])
    await broker.seek(queue, 1)
    assert await take(broker, queue, "after") == [0]


async def test_a_parent_that_goes_back_takes_nothing_away(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.publish(queue, [b"a"])
    await take(broker, queue, "default")
    await broker.seek(queue, 0)
    assert await take(broker, queue, "after") == [0]


@pytest.mark.over_restarts
async def test_a_dependency_holds_over_a_restart(world: World, broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "after", after=["default"])
    published = await broker.publish(queue, [b"a", b"b", b"c"])
    await broker.ack(queue, [published[1].id])
    await broker.release(queue, "after", [2])
    await world.restart()
    assert await broker.held(queue, "after") == [0]
    assert await take(broker, queue, "after") == [1, 2]
    await world.restart()
    assert await take(broker, queue, "after") == []
    await take(broker, queue, "default")
    await world.restart()
    assert await take(broker, queue, "after") == [0]


async def test_who_gets_another_parent_still_waits_out_a_backoff(
    world: World, broker: Broker, queue: str
) -> None:
    # Given a message that comes again after a while, and one that is in flight
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.create_subscription(queue, "other")
    soon = world.clock.later(1)
    await broker.publish(queue, [NewMessage(body=b, not_before=soon) for b in (b"a", b"b")])
    world.clock.advance(1)
    await take(broker, queue, "default")
    given = await broker.receive(queue, subscription="after", limit=2)
    await broker.nack(queue, receipts(given)[:1], "after", delay_seconds=10)
    # When the subscription is to wait for another one as well, and then for none
    for after in (["default", "other"], []):
        await broker.alter_subscription(queue, "after", after=after)
        stats = await world.stats("after")
        assert (stats.delayed, stats.in_flight) == (1, 1)
        assert (stats.ready, stats.held, stats.parked) == (0, 0, 0)
        assert await broker.receive(queue, subscription="after") == []
    # Then it comes when that is over, and not before
    world.clock.advance(10)
    assert indexes(await broker.receive(queue, subscription="after")) == [0]


async def test_a_delayed_message_waits_for_a_parent_that_came_meanwhile(
    world: World, broker: Broker, queue: str
) -> None:
    # Given a delayed message that a subscription already waits for
    await broker.create_subscription(queue, "after")
    await broker.publish(queue, [NewMessage(body=b"a", not_before=world.clock.later(10))])
    await world.pass_time(1)
    assert (await world.stats("after")).delayed == 1
    # When it is to wait for another subscription as well
    await broker.alter_subscription(queue, "after", after=["default"])
    await world.pass_time(9)
    # Then it gets the message after that, though the delay is over
    assert await broker.receive(queue, subscription="after") == []
    assert await broker.held(queue, "after") == [0]
    assert await take(broker, queue, "default") == [0]
    assert await take(broker, queue, "after") == [0]

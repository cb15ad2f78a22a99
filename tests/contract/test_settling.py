from __future__ import annotations

from typing import cast

import pytest

from penstock.broker import Broker
from penstock.core.settling import Outcome
from penstock.errors import InvalidArgument, InvalidReceipt, PenstockError
from penstock.storage.base import Ack, AckUpTo, Extend, Nack, Settlement
from tests.contract.world import World, bodies, indexes, receipts

DONE, SETTLED = Outcome.DONE, Outcome.ALREADY_SETTLED
NOT_LEASED, NOT_FOUND = Outcome.NOT_LEASED, Outcome.NOT_FOUND


async def test_an_acked_message_never_comes_again(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    given = await broker.receive(queue, limit=2)
    assert await broker.ack(queue, receipts(given)) == [DONE, DONE]
    await world.pass_time(1000)
    assert await broker.receive(queue, limit=5) == []
    stats = await world.stats()
    assert (stats.acked, stats.lowest_unacked_index, stats.last_ack_at) == (
        2,
        2,
        world.clock.later(-1000),
    )


async def test_a_delivery_can_be_settled_itself(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b"])
    first, second = await broker.receive(queue, limit=2)
    assert await broker.extend(queue, [first, second], 60) == [DONE, DONE]
    assert await broker.nack(queue, [first]) == [DONE]
    assert await broker.ack(queue, [second]) == [DONE]
    assert bodies(await broker.receive(queue, limit=5)) == [b"a"]


async def test_acks_may_come_in_any_order(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(5)])
    given = receipts(await broker.receive(queue, limit=5))
    for at in (3, 1, 4):
        await broker.ack(queue, [given[at]])
    assert (await world.stats()).lowest_unacked_index == 0
    await broker.ack(queue, [given[0]])
    assert (await world.stats()).lowest_unacked_index == 2
    await broker.ack(queue, [given[2]])
    assert (await world.stats()).lowest_unacked_index == 5


async def test_an_ack_is_idempotent(broker: Broker, queue: str) -> None:
    (published,) = await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    assert await broker.ack(queue, [delivery.receipt] * 2) == [DONE, DONE]
    assert await broker.ack(queue, [delivery.receipt, published.id]) == [SETTLED, SETTLED]


async def test_a_stale_receipt_never_settles_a_newer_delivery(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (old,) = await broker.receive(queue)
    world.clock.advance(30)
    (new,) = await broker.receive(queue)
    for call in (
        broker.ack(queue, [old.receipt]),
        broker.nack(queue, [old.receipt]),
        broker.extend(queue, [old.receipt], 60),
    ):
        assert await call == [NOT_LEASED]
    assert await broker.ack(queue, [new.receipt]) == [DONE]


async def test_in_a_batch_every_receipt_is_judged_by_itself(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"b", b"c"])
    stale, settled, live = receipts(await broker.receive(queue, limit=3))
    await broker.nack(queue, [stale], delay_seconds=0)
    [again] = receipts(await broker.receive(queue))
    await broker.ack(queue, [settled])
    targets = [live, stale, settled, again]
    assert await broker.ack(queue, targets) == [DONE, NOT_LEASED, SETTLED, DONE]


async def test_a_late_ack_counts_as_long_as_nobody_else_got_the_message(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    await world.pass_time(31)
    assert (await world.stats()).ready == 1
    assert await broker.nack(queue, [delivery.receipt]) == [NOT_LEASED]
    assert await broker.ack(queue, [delivery.receipt]) == [DONE]
    assert await broker.receive(queue) == []


async def test_an_ack_after_a_nack_is_stale(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    assert await broker.nack(queue, [delivery.receipt]) == [DONE]
    assert await broker.ack(queue, [delivery.receipt]) == [NOT_LEASED]
    assert await broker.nack(queue, [delivery.receipt]) == [NOT_LEASED]


async def test_by_id_a_message_is_acked_whatever_its_state(
    world: World, broker: Broker, queue: str
) -> None:
    published = await broker.publish(queue, [b"ready", b"in flight", b"nacked", b"last"])
    ids = [p.id for p in published]
    given = await broker.receive(queue, limit=3)
    await broker.nack(queue, [given[2].receipt], delay_seconds=60)
    await broker.nack(queue, [given[0].receipt])
    assert await broker.ack(queue, ids[:3]) == [DONE] * 3
    await world.pass_time(1000)
    assert bodies(await broker.receive(queue, limit=5)) == [b"last"]


async def test_by_id_only_what_is_in_flight_is_nacked_or_extended(
    world: World, broker: Broker, queue: str
) -> None:
    published = await broker.publish(queue, [b"a", b"b", b"c"])
    ids = [p.id for p in published]
    await broker.receive(queue, limit=2)
    await broker.ack(queue, ids[1:2])
    assert await broker.extend(queue, ids, 60) == [DONE, SETTLED, NOT_LEASED]
    world.clock.advance(50)
    assert await broker.nack(queue, ids) == [DONE, SETTLED, NOT_LEASED]
    assert indexes(await broker.receive(queue, limit=5)) == [0, 2]


async def test_what_is_not_there_is_not_found(broker: Broker, queue: str) -> None:
    await broker.create_queue("other")
    (published,) = await broker.publish("other", [b"a"])
    (delivery,) = await broker.receive("other")
    unknown = [published.id, published.id.replace("-7", "-4"), "x" * 8 + "-" + "x" * 27]
    for call in (
        broker.ack(queue, unknown),
        broker.nack(queue, unknown),
        broker.extend(queue, unknown, 5),
    ):
        assert await call == [NOT_FOUND] * 3
    assert await broker.ack("other", [delivery.receipt]) == [DONE]


@pytest.mark.parametrize("text", ["", "abc", "1.2", "1.2.3.4", "-1.0.1", "1. 0.1", "01.0.1", "²"])
async def test_a_text_that_is_no_receipt_is_refused(broker: Broker, queue: str, text: str) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    for call in (
        broker.ack(queue, [delivery.receipt, text]),
        broker.nack(queue, [delivery.receipt, text]),
        broker.extend(queue, [delivery.receipt, text], 5),
    ):
        with pytest.raises(InvalidReceipt):
            await call
    assert await broker.ack(queue, [delivery.receipt]) == [DONE]


async def test_a_receipt_of_another_subscription_is_refused(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "audit")
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue, subscription="audit")
    await broker.receive(queue)
    with pytest.raises(InvalidReceipt):
        await broker.ack(queue, [delivery.receipt])
    with pytest.raises(InvalidReceipt):
        await broker.ack(queue, [delivery])


async def test_everything_up_to_an_index_is_acked_at_once(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(6)])
    given = await broker.receive(queue, limit=3)
    await broker.nack(queue, [given[0].receipt], delay_seconds=60)
    await broker.ack(queue, [given[1].receipt])
    assert await broker.ack_up_to(queue, 4) == 3
    assert (await world.stats()).lowest_unacked_index == 4
    await world.pass_time(1000)
    assert indexes(await broker.receive(queue, limit=9)) == [4, 5]
    assert await broker.ack_up_to(queue, 4) == 0
    assert await broker.ack_up_to(queue, 1000) == 2


async def test_several_settlements_go_in_one_batch(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(5)])
    given = receipts(await broker.receive(queue, limit=4))
    outcomes = await broker.settle(
        queue,
        [
            Ack(targets=given[:1]),
            Nack(targets=given[1:2], reason="later"),
            Extend(targets=given[2:3], seconds=60),
            AckUpTo(index=1),
            Ack(targets=given[:1]),
        ],
    )
    assert outcomes == [[DONE], [DONE], [DONE], [], [SETTLED]]
    assert indexes(await broker.receive(queue, limit=9)) == [1, 4]


@pytest.mark.parametrize(
    "bad",
    [
        Ack(targets=["no receipt"]),
        Nack(targets=[], delay_seconds=-1),
        Nack(targets=[], reason=cast(str, 5)),
        Extend(targets=[], seconds=0),
        AckUpTo(index=cast(int, "1")),
    ],
)
async def test_a_batch_with_a_bad_settlement_changes_nothing(
    broker: Broker, queue: str, bad: Settlement
) -> None:
    await broker.publish(queue, [b"a", b"b"])
    given = receipts(await broker.receive(queue, limit=2))
    with pytest.raises(PenstockError):
        await broker.settle(queue, [Ack(targets=given[:1]), Nack(targets=given[1:]), bad])
    assert await broker.ack(queue, given) == [DONE, DONE]


async def test_nack_needs_a_delay_of_zero_or_more(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    (delivery,) = await broker.receive(queue)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidArgument):
            await broker.nack(queue, [delivery.receipt], delay_seconds=seconds)


@pytest.mark.over_restarts
async def test_what_was_acked_stays_acked_after_a_restart(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.publish(queue, [b"%d" % n for n in range(6)])
    given = receipts(await broker.receive(queue, limit=5))
    await broker.ack(queue, [given[0], given[3]])
    await broker.nack(queue, [given[1]], delay_seconds=60)
    before = await broker.stats()
    await world.restart()
    assert await broker.stats() == before
    world.clock.advance(60)
    assert indexes(await broker.receive(queue, limit=9)) == [1, 2, 4, 5]

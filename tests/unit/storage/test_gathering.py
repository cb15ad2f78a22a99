"""Acks and receives of one turn of the loop share an event, and each caller has its own answer."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.broker import Broker
from penstock.core.config import SubscriptionConfig
from penstock.core.events import Acked, Delivered, Event
from penstock.core.machine import Journal, Place
from penstock.core.message import Delivery
from penstock.core.outcome import Outcome
from penstock.errors import InvalidArgument, InvalidReceipt, PenstockError, QueueNotFound
from penstock.storage.answers import Done
from penstock.storage.memory import MemoryStore
from tests.contract.clock import ManualClock


class Seen(Journal):
    """The events that a machine has written."""

    def __init__(self, store: MemoryStore) -> None:
        self._journal = store.machine.journal
        self.events: list[Event] = []
        store.machine.journal = self

    def append(self, event: Event) -> Place:
        self.events.append(event)
        return self._journal.append(event)

    def of(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=ManualClock())


async def test_consumers_that_come_together_get_a_message_each(store: MemoryStore) -> None:
    # Given two messages, and three consumers
    async with Broker(store) as broker:
        await broker.create_queue("q")
        for body in (b"a", b"b"):
            await broker.publish("q", [body])
        seen = Seen(store)
        # When they ask at once
        found = await asyncio.gather(*(broker.receive("q") for _ in range(3)))
        # Then each has one, in order, who came last has none, and it is one event
        assert [[delivery.body for delivery in one] for one in found] == [[b"a"], [b"b"], []]
        assert seen.of(Delivered) == 1


async def test_consumers_that_ask_for_many_get_no_more_than_they_asked_for(
    store: MemoryStore,
) -> None:
    async with Broker(store) as broker:
        await broker.create_queue("q")
        await broker.publish("q", [bytes([n]) for n in range(10)])
        seen = Seen(store)
        found = await asyncio.gather(
            *(broker.receive("q", limit=limit) for limit in (3, 1, 4, 100, 2))
        )
        assert [[one.index for one in share] for share in found] == [
            [0, 1, 2],
            [3],
            [4, 5, 6, 7],
            [8, 9],
            [],
        ]
        assert seen.of(Delivered) == 1


async def test_what_is_too_large_for_one_is_for_the_next(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        await broker.create_queue("q")
        await broker.publish("q", [bytes(100)] * 5)
        first, second = await asyncio.gather(
            broker.receive("q", limit=3, most_bytes=250), broker.receive("q", limit=2)
        )
        assert [one.index for one in first] == [0, 1]
        assert [one.index for one in second] == [2, 3]
        assert [one.index for one in await broker.receive("q", limit=9)] == [4]


async def test_no_more_are_in_flight_than_may_be_whoever_asks(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        await broker.create_queue("q")
        await broker.create_subscription("q", "s", SubscriptionConfig(max_in_flight=4))
        await broker.publish("q", [b""] * 10)
        asking = (broker.receive("q", subscription="s", limit=3) for _ in range(3))
        found = await asyncio.gather(*asking)
        assert [len(share) for share in found] == [3, 1, 0]


async def test_each_asks_for_a_lease_of_its_own(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        await broker.create_queue("q")
        await broker.publish("q", [b"a", b"b"])
        [short], [long] = await asyncio.gather(
            broker.receive("q", lease_seconds=1), broker.receive("q", lease_seconds=60)
        )
        assert short.deadline is not None
        assert long.deadline is not None
        assert (long.deadline - short.deadline).total_seconds() == 59


async def test_who_leaves_before_it_is_decided_takes_nothing(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        await broker.create_queue("q")
        await broker.publish("q", [b"a"])
        # Given two who ask, the first of whom leaves at once
        leaving = asyncio.ensure_future(broker.receive("q"))
        staying = asyncio.ensure_future(broker.receive("q"))
        await asyncio.sleep(0)
        leaving.cancel()
        # Then the other has the message, for the first time
        [delivery] = await staying
        assert (delivery.body, delivery.deliveries) == (b"a", 1)


async def test_who_leaves_before_it_is_durable_gives_it_back(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(store) as broker:
        await broker.create_queue("q")
        await broker.publish("q", [b"a", b"b"])
        # Given a disk that takes its time
        waiting: list[Done] = []
        monkeypatch.setattr(store._journal, "call_when_committed", waiting.append)
        leaving = asyncio.ensure_future(broker.receive("q"))
        staying = asyncio.ensure_future(broker.receive("q"))
        for _ in range(3):
            await asyncio.sleep(0)
        # When one of two leaves meanwhile
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        monkeypatch.undo()
        for done in waiting:
            done(None)
        # Then its message is there for others, as if it had never been given
        assert [delivery.body for delivery in await staying] == [b"b"]
        [again] = await broker.receive("q")
        assert (again.body, again.deliveries) == (b"a", 1)


async def test_a_queue_that_is_not_there_is_told_to_all_who_ask(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        found = await asyncio.gather(
            *(broker.receive("none") for _ in range(3)), return_exceptions=True
        )
        assert [type(one) for one in found] == [QueueNotFound] * 3
        assert len({id(one) for one in found}) == 3


async def given(broker: Broker, count: int) -> list[Delivery]:
    await broker.create_queue("q")
    await broker.publish("q", [b"%d" % n for n in range(count)])
    return await broker.receive("q", limit=count)


async def left(broker: Broker) -> list[int]:
    return [one.index for one in await broker.view("q", settled=False)]


async def test_acks_that_come_together_are_one_event(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        deliveries = await given(broker, 5)
        seen = Seen(store)
        outcomes = await asyncio.gather(
            broker.ack("q", deliveries[:2]),
            broker.ack("q", [deliveries[2].receipt]),
            broker.ack("q", [deliveries[3].id]),
        )
        assert list(outcomes) == [[Outcome.DONE] * 2, [Outcome.DONE], [Outcome.DONE]]
        assert seen.of(Acked) == 1
        assert await left(broker) == [4]


async def test_a_wrong_receipt_harms_nobody_who_came_with_it(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        deliveries = await given(broker, 3)
        found = await asyncio.gather(
            broker.ack("q", [deliveries[0]]),
            broker.ack("q", [deliveries[1].receipt, "no receipt"]),
            broker.ack("q", [deliveries[2].id]),
            return_exceptions=True,
        )
        assert [found[0], found[2]] == [[Outcome.DONE], [Outcome.DONE]]
        assert isinstance(found[1], InvalidReceipt)
        assert await left(broker) == [1]


@pytest.mark.parametrize("index", [1.0, True, float("nan"), "1"])
async def test_a_delivery_that_somebody_made_up_is_refused(
    store: MemoryStore, index: object
) -> None:
    async with Broker(store) as broker:
        deliveries = await given(broker, 3)
        made_up = msgspec.structs.replace(deliveries[1], index=index)
        with pytest.raises(InvalidArgument):
            await broker.ack("q", [deliveries[0], made_up, deliveries[2]])
        assert await left(broker) == [0, 1, 2]


async def test_a_message_that_two_ack_in_one_turn_is_done_for_both(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        [delivery] = await given(broker, 1)
        both = await asyncio.gather(*(broker.ack("q", [delivery]) for _ in range(2)))
        assert both == [[Outcome.DONE], [Outcome.DONE]]
        assert await broker.ack("q", [delivery]) == [Outcome.ALREADY_SETTLED]


async def test_what_has_gathered_when_the_store_closes_is_refused(store: MemoryStore) -> None:
    async with Broker(store) as broker:
        [delivery] = await given(broker, 1)
        acking = asyncio.ensure_future(broker.ack("q", [delivery]))
        receiving = asyncio.ensure_future(broker.receive("q"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        found = await asyncio.gather(acking, receiving, closing, return_exceptions=True)
        # Done or refused: nobody is left waiting.
        assert all(isinstance(one, list | PenstockError) for one in found[:2])

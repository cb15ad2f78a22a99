"""Histories in which events are missing: whatever is left makes a state that holds together."""

from __future__ import annotations

import os
from contextlib import suppress
from random import Random

import pytest

from penstock.broker import Broker
from penstock.core.events import DeadLettered, Event, Lost, Published
from penstock.core.machine import Machine, Place
from penstock.core.queue import Queue
from penstock.core.runs import Runs
from penstock.core.stats import subscription_stats
from penstock.core.subscription import Subscription
from penstock.errors import PenstockError
from penstock.storage.memory import MemoryStore
from penstock.storage.wal.blank import blank_machine
from penstock.storage.wal.offline.gapped import GappedHistory
from tests.faults.random_history import QUEUES, random_message
from tests.faults.store import Clock

SEEDS = int(os.environ.get("PENSTOCK_GAP_SEEDS", "4"))
FAR_AHEAD_NS = 3_000_000_000_000_000_000


class Recorder:
    """Keeps every event that goes into a journal."""

    def __init__(self, store: MemoryStore) -> None:
        self.events: list[Event] = []
        self._journal = store.machine.journal
        store.machine.journal = self

    def append(self, event: Event) -> Place:
        self.events.append(event)
        return self._journal.append(event)


async def record_history(seed: int) -> list[Event]:
    """Everything that a user can do, at random."""
    rng, clock = Random(seed), Clock()
    store = MemoryStore(clock=clock, rng=rng)
    recorder = Recorder(store)
    broker = Broker(store)
    for _ in range(250):
        clock.advance(rng.random() * 20)
        queue = rng.choice(list(QUEUES))
        subscription = rng.choice(QUEUES[queue])
        with suppress(PenstockError):  # not every request makes sense at every time
            if queue not in store.machine.queues:
                await broker.create_queue(queue, fifo=queue == "groups")
            elif rng.random() < 0.2:
                await _define(rng, broker, queue, subscription)
            elif rng.random() < 0.2:
                await _administer(rng, broker, queue, subscription)
            elif rng.random() < 0.1:
                await store.tick()
            elif rng.random() < 0.4:
                count = rng.randrange(1, 4)
                await broker.publish(queue, [random_message(rng, 9) for _ in range(count)])
            else:
                await _consume(rng, broker, queue, subscription)
    await broker.close()
    return recorder.events


async def _define(rng: Random, broker: Broker, queue: str, subscription: str) -> None:
    action, other = rng.random(), rng.choice(QUEUES[queue])
    if action < 0.5:
        await broker.create_subscription(
            queue,
            subscription,
            start=rng.choice(["earliest", "latest"]),
            filter=rng.choice([None, "body.kind == 'even'", "topic == 'a'"]),
            after=rng.choice([[], [other]]),
            on_dead_parent=rng.choice(["hold", "cascade", "ignore"]),
            max_deliveries=rng.choice([1, 2, None]),
        )
    elif action < 0.6:
        await broker.delete_queue(queue)
    elif action < 0.7:
        await broker.delete_subscription(queue, subscription)
    elif action < 0.9:
        await broker.alter_subscription(queue, subscription, after=rng.choice([[], [other]]))
    else:
        await broker.alter_queue(queue, retention_messages=rng.choice([5, 50]))


async def _administer(rng: Random, broker: Broker, queue: str, subscription: str) -> None:
    action = rng.random()
    if action < 0.1:
        await broker.purge_queue(queue)
    elif action < 0.4:
        await broker.seek(queue, rng.randrange(30), subscription)
    elif action < 0.6:
        await broker.replay(queue)
    elif action < 0.8:
        await broker.discard(queue)
    else:
        await broker.release(queue, subscription, await broker.held(queue, subscription, 2))


async def _consume(rng: Random, broker: Broker, queue: str, subscription: str) -> None:
    limit = rng.randrange(1, 6)
    if rng.random() < 0.2:
        deliveries = await broker.poll(queue, subscription, start=rng.randrange(20), count=limit)
    else:
        deliveries = await broker.receive(queue, subscription=subscription, limit=limit)
    for delivery in deliveries:
        receipt, chance = [delivery.receipt], rng.random()
        if chance < 0.5:
            await broker.ack(queue, receipt, subscription)
        elif chance < 0.7:
            await broker.nack(queue, receipt, subscription, delay_seconds=rng.random())
        elif chance < 0.8:
            await broker.extend(queue, receipt, 60, subscription)


def replay(events: list[Event], missing: range) -> Machine:
    """Apply the events but for those that are missing."""
    machine = blank_machine(Random(1))

    def lose(queue: Queue, stop: int) -> None:
        if queue.next < stop:
            count = stop - queue.next
            event = Lost(at_ns=machine.now_ns, queue_id=queue.id, first=queue.next, count=count)
            machine.apply(event, Place(0, 0))

    history = GappedHistory(machine, lose)
    for number, event in enumerate(events):
        # A replayed event has no bodies.
        place = Place(number + 1, 1)
        if number < missing.start:
            machine.apply(event, place)
        elif number not in missing:
            history.apply(event, place)
    history.finish()
    return machine


def check_subscription(subscription: Subscription) -> None:
    """Every message that is not settled is in exactly one place, and none is in flight."""
    subscription.mature(FAR_AHEAD_NS)
    matched = subscription.feed.matched
    unsettled = {i for run in subscription.unsettled_within(0, 2**40) for i in range(*run)}
    ready = [i for run in subscription.ready_runs(2**40) for i in range(*run)]
    parked = [i for line in subscription.groups.lines.values() for i in line[1:]]
    held = [i for run in subscription.held() for i in range(*run)]
    assert not subscription.leases
    assert sorted([*ready, *parked, *held]) == sorted(unsettled)
    assert subscription.unsettled == len(unsettled)
    assert subscription.attempts.keys() <= unsettled
    assert all(index in matched for index in unsettled)
    stats = subscription_stats(subscription, FAR_AHEAD_NS)
    assert stats.ready == len(ready)


def check_machine(machine: Machine) -> None:
    for queue in machine.queues.values():
        assert machine.queues_by_id[queue.id] is queue
        assert queue.first <= queue.next
        for subscription in queue.subscriptions.values():
            check_subscription(subscription)
        # What is needed can be found
        for index in queue.stragglers:
            assert queue.is_needed(index)
        letters = queue.dead_letters
        if letters is not None:
            assert letters.source is queue
            assert len(letters.letter_origins) == letters.next - letters.first
            assert letters.default is not None
            pins: dict[int, int] = {}
            for run in letters.default.unsettled_within(letters.first, letters.next):
                for index in range(*run):
                    origin = letters.letter(index).index
                    pins[origin] = pins.get(origin, 0) + 1
            assert pins == queue.pins


def messages_of(machine: Machine) -> dict[int, Runs]:
    return {queue.id: queue.feeds.everything.matched for queue in machine.queues.values()}


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_is_missing_the_state_holds_together(seed: int) -> None:
    # Given a history
    events = await record_history(seed)
    whole = replay(events, range(len(events), len(events)))
    rng = Random(seed)
    for start in range(len(events)):
        # When one event is missing, or a few in a row
        missing = range(start, start + rng.choice([1, 1, 2, 5, 20]))
        machine = replay(events, missing)
        # Then the state holds together
        check_machine(machine)
        # and every message that is left is there, unless its queue was removed
        gone = [e for e in events[start : missing.stop] if isinstance(e, Published)]
        lost = {(e.queue_id, i) for e in gone for i in range(e.first, e.first + e.count)}
        found = messages_of(machine)
        for queue in whole.queues.values():
            if queue.source is None and queue.id in found:
                for run in queue.feeds.everything.matched.within(queue.first, queue.next):
                    for index in range(*run):
                        assert (queue.id, index) in lost or index in found[queue.id]


async def test_a_dead_letter_queue_is_known_from_its_letters() -> None:
    """Its creation is lost; the letters are not."""
    for seed in range(10):
        events = await record_history(seed)
        for at, event in enumerate(events):
            if getattr(event, "dead_letters_of", None) is not None:
                machine = replay(events, range(at, at + 1))
                check_machine(machine)
                after = [e for e in events[at:] if isinstance(e, DeadLettered)]
                letters = machine.queues_by_id.get(after[0].dead_letter_queue_id)
                if letters is not None and letters.source is not None:
                    assert letters.name == f"{letters.source.name}-dlq"

"""The end of a history: consume everything, then account for every message."""

from __future__ import annotations

from penstock.broker import Broker
from penstock.core.subscription import Subscription
from penstock.storage import base
from tests.simulation.clients import Clients, Holding
from tests.simulation.clock import VirtualClock
from tests.simulation.history import Violation

# Longer than any lease, delay or backoff of the workload, even if the clock was set back.
_LONG_SECONDS = 3600
_BATCH = 100
# Rounds on top of those that a plain backlog takes: for what comes one after the other.
_FURTHER_ROUNDS = 200


async def drain(clients: Clients, clock: VirtualClock) -> None:
    """Raises `Violation` when something is lost or stuck."""
    machine = clients.store.machine
    readers = [
        subscription
        for queue in machine.queues.values()
        if queue.source is None and queue.events_of is None
        for subscription in queue.subscriptions.values()
    ]
    await clients.tick()  # as a store does by itself: the disk may be full no longer
    for reader in readers:
        await clients.define(
            base.AlterSubscription(
                queue=reader.queue.name, subscription=reader.name, changes={"paused": False}
            )
        )
    clock.advance(_LONG_SECONDS)
    await clients.tick()
    for reader in readers:
        for index, lease in reader.leases.by_index().items():
            if lease.deadline_ns is None:
                await clients.ask_again(reader, index)
                await clients.ack([clients.holdings[-1]], by_id=False)
    await _consume(clients, readers)
    for reader in readers:
        await _account(clients, reader)


async def _consume(clients: Clients, readers: list[Subscription]) -> None:
    """Until nobody gets anything any more."""
    backlog = max((reader.queue.next - reader.queue.first for reader in readers), default=0)
    for _ in range(backlog // _BATCH + _FURTHER_ROUNDS):
        is_empty = True
        for reader in readers:
            count = len(await clients.receive(reader, _BATCH, None))
            if count:
                is_empty = False
                holdings: list[Holding] = clients.holdings[-count:]
                await clients.ack(holdings, by_id=False)
        if is_empty:
            return
    raise Violation("drain", "there is no end to the messages")


async def _account(clients: Clients, reader: Subscription) -> None:
    store, checker, queue = clients.store, clients.checker, reader.queue
    stats = await store.queue_stats(queue.name)
    one = next(s for s in stats.subscriptions if s.name == reader.name)
    if (one.ready, one.in_flight, one.delayed, one.parked) != (0, 0, 0, 0):
        raise Violation(
            "stuck",
            f"{queue.name}/{reader.name} is drained, but has {one.ready} ready, "
            f"{one.in_flight} in flight, {one.delayed} delayed, {one.parked} parked",
            [f"{queue.name}/{reader.name}"],
        )
    unsettled = one.ready + one.in_flight + one.delayed + one.parked + one.held
    settled = one.acked + one.dead_lettered + one.expired + one.purged - one.replayed
    came = stats.next_index - reader.start - one.filtered
    if not checker.reader(reader).seeks and came != settled + unsettled:
        raise Violation(
            "stats",
            f"{queue.name}/{reader.name}: {came} came, but {settled} are settled and {unsettled} "
            f"are not: {one}",
        )
    letters = await Broker(store).dead_letters(queue.name, 0, 1_000_000)
    dead = {
        letter.dead_letter.index
        for letter in letters
        if letter.dead_letter is not None and letter.dead_letter.subscription == reader.name
    }
    held = [one.index for one in await store.held(queue.name, reader.name, 1_000_000)]
    now_ns = store.machine.now_ns
    checker.check_nothing_lost(queue, reader, dead, set(held), now_ns)
    for index in held:
        checker.check_held(reader, reader.parents, index)

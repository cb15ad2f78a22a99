"""What is checked of a machine: against the naive model, and against another machine."""

from __future__ import annotations

import msgspec

from penstock.core.machine import Machine
from penstock.core.stats import queue_stats, subscription_stats
from penstock.core.subscription import Subscription
from tests.unit.core.naive_subscription import NaiveSubscription
from tests.unit.core.sent import indexes_of

__all__ = ["check_reader", "compare"]


def check_reader(reader: Subscription, naive: NaiveSubscription, now_ns: int) -> None:
    """Every message is where the naive model says, and is counted there."""
    reader.mature(now_ns)
    next_index = reader.queue.next
    unsettled = set(indexes_of(list(reader.unsettled_within(0, next_index))))
    assert unsettled == naive.unsettled
    assert reader.unsettled == len(naive.unsettled)
    assert reader.floor == naive.floor
    # A dead letter is forgotten with its message.
    assert set(indexes_of(list(reader.dead))) == {
        index for index in naive.dead if reader.queue.holds(index)
    }
    assert {
        i: msgspec.structs.astuple(lease)[:3] for i, lease in reader.leases.by_index().items()
    } == {i: tuple(lease) for i, lease in naive.leases.items()}
    assert {i: tried.deliveries for i, tried in reader.attempts.items()} == naive.tries
    assert set(indexes_of(list(reader.held()))) == naive.held, "held"
    parked = {index for line in reader.groups.lines.values() for index in line[1:]}
    assert parked == naive.parked, "parked"
    assert set(reader.waiting.times) == naive.delayed(now_ns), "delayed"
    assert indexes_of(reader.ready_runs(next_index + 1)) == naive.ready(now_ns), "ready"
    stats = subscription_stats(reader, now_ns)
    assert (stats.ready, stats.in_flight, stats.delayed, stats.parked, stats.held) == (
        len(naive.ready(now_ns)),
        len(naive.leases),
        len(naive.delayed(now_ns)),
        len(naive.parked),
        len(naive.held),
    )


def compare(machine: Machine, other: Machine, now_ns: int) -> None:
    """Both are the same to see from outside, now and in all that may come."""
    assert list(other.queues) == list(machine.queues)
    for queue in machine.queues.values():
        twin = other.queues[queue.name]
        assert (twin.first, twin.next) == (queue.first, queue.next)
        assert twin.stragglers == queue.stragglers
        assert twin.pins == queue.pins
        ours = queue_stats(queue, now_ns)
        theirs = queue_stats(twin, now_ns)
        # The only thing that no event tells: how often a duplicate was refused.
        assert theirs == msgspec.structs.replace(ours, duplicates=theirs.duplicates)
        for reader in queue.subscriptions.values():
            _compare_readers(reader, twin.subscriptions[reader.name])


def _compare_readers(reader: Subscription, twin: Subscription) -> None:
    stop = reader.queue.next
    assert reader.waiting.times == twin.waiting.times, "waiting"
    assert reader.groups.lines == twin.groups.lines, "groups"
    for name in ("leases", "attempts", "epoch", "polled", "start", "config"):
        assert getattr(reader, name) == getattr(twin, name), name
    assert reader.ready_runs(stop + 1) == twin.ready_runs(stop + 1)
    assert list(reader.unsettled_within(0, stop)) == list(twin.unsettled_within(0, stop))
    assert reader.dead == twin.dead
    assert reader.counters == twin.counters

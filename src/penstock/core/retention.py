"""Commands triggered by time: messages expire, leases run out, history is trimmed."""

from __future__ import annotations

from penstock.core import events as ev
from penstock.core.dead_letters import bury_or, cascade
from penstock.core.limits import MAX_STRAGGLERS, NANOSECONDS
from penstock.core.machine import Machine
from penstock.core.queue import Queue
from penstock.core.runs import Run, Runs, runs_of
from penstock.core.subscription import Subscription

__all__ = ["end_leases", "expire", "tick", "trim"]


def tick(machine: Machine, queue: Queue, now_ns: int) -> None:
    """Do everything that is due in a queue. Cheap if nothing is."""
    expire(machine, queue, now_ns)
    queue.forget_dedup_keys(now_ns)
    for subscription in list(queue.subscriptions.values()):
        end_leases(machine, subscription, now_ns)
        subscription.mature(now_ns)
        # `bury` does this at once; repeated here in case a crash cut that short.
        cascade(machine, subscription, now_ns)
    trim(machine, queue, now_ns)


def expire(machine: Machine, queue: Queue, now_ns: int) -> None:
    """Settle for every subscription what has expired and is not in flight."""
    runs: list[Run] = []
    if queue.expiry.heap:
        runs += runs_of(queue.expiry.pop_due(now_ns))
    ttl = queue.config.message_ttl_seconds
    if ttl is not None:
        before = queue.timeline.index_at_time(now_ns - round(ttl * NANOSECONDS) + 1)
        stop = queue.next if before is None else before
        start = max(queue.ttl_checked, queue.first)
        if stop > start:
            runs += queue.too_old(start, stop)
            queue.ttl_checked = stop
        if queue.stragglers:
            runs += queue.aged(now_ns)
    if runs:
        runs = list(Runs(runs))  # a message may have expired in both ways
        for subscription in list(queue.subscriptions.values()):
            _settle_expired(machine, subscription, runs, now_ns, in_flight_too=False)


def _settle_expired(
    machine: Machine,
    subscription: Subscription,
    runs: list[Run],
    now_ns: int,
    *,
    in_flight_too: bool,
) -> None:
    unsettled = [part for run in runs for part in subscription.unsettled_within(*run)]
    if subscription.leases and not in_flight_too:
        unsettled = [part for run in unsettled for part in subscription.leases.outside(*run)]
    if unsettled:
        machine.emit(
            ev.Expired(at_ns=now_ns, subscription_id=subscription.id, runs=ev.flat(unsettled))
        )


def end_leases(machine: Machine, subscription: Subscription, now_ns: int) -> None:
    """End overdue leases: each message expires, becomes a dead letter, or is ready again."""
    overdue = subscription.deadlines.overdue(subscription.leases, now_ns)
    if overdue:
        again = [
            index for index in overdue if not bury_or(machine, subscription, index, "", now_ns)
        ]
        if again:
            machine.emit(
                ev.LeaseExpired(
                    at_ns=now_ns,
                    subscription_id=subscription.id,
                    runs=ev.flat(runs_of(again)),
                )
            )


def trim(machine: Machine, queue: Queue, now_ns: int) -> None:
    """Trim the history at the front to what the queue's retention allows."""
    config = queue.config
    wanted = queue.first
    if config.retention_seconds is not None:
        since_ns = now_ns - round(config.retention_seconds * NANOSECONDS)
        index = queue.timeline.index_at_time(since_ns)
        wanted = max(wanted, queue.next if index is None else index)
    if config.retention_messages is not None:
        wanted = max(wanted, queue.next - config.retention_messages)
    if config.retention_bytes is not None:
        index = queue.timeline.index_at_bytes(config.retention_bytes)
        wanted = max(wanted, queue.next if index is None else index)
    if wanted <= queue.first:
        return
    if config.retain_unsettled:
        wanted = _passable(queue, wanted)
    else:
        for subscription in list(queue.subscriptions.values()):
            run = (queue.first, wanted)
            _settle_expired(machine, subscription, [run], now_ns, in_flight_too=True)
    if wanted > queue.first:
        machine.emit(ev.Trimmed(at_ns=now_ns, queue_id=queue.id, first=wanted))


def _passable(queue: Queue, wanted: int) -> int:
    """How far to trim without keeping too many unsettled messages aside."""
    if queue.source is not None:
        # Dead letters are in columns beside the timeline, so none can be kept aside.
        return min(wanted, *(reader.floor for reader in queue.subscriptions.values()))
    for subscription in queue.subscriptions.values():
        allowed = MAX_STRAGGLERS - len(queue.stragglers)
        for start, stop in subscription.unsettled_within(queue.first, wanted):
            if stop - start > allowed:
                wanted = start
                break
            allowed -= stop - start
    return wanted

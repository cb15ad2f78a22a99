"""Commands that give messages to consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core import events as ev
from penstock.core.config import check_seconds, check_whole
from penstock.core.limits import NANOSECONDS
from penstock.core.machine import Machine
from penstock.core.queue import Queue
from penstock.core.retention import end_leases, expire
from penstock.core.runs import Run, cut
from penstock.core.subscription import Subscription
from penstock.errors import MessageNotFound, NotLeased

__all__ = ["Handout", "Want", "ask_again", "poll", "receive", "receive_each"]


class Handout(NamedTuple):
    """What was leased, in the order in which it is to be delivered."""

    subscription: Subscription
    runs: list[Run]
    epoch: int
    deadline_ns: int | None
    counts: dict[int, int]  # how often redelivered ones were delivered, this time included


class Want(NamedTuple):
    """How many messages a consumer asks for.

    `most_bytes` limits their total size, roughly, but never to less than one message.
    """

    limit: int
    most_bytes: int | None = None


def receive(
    machine: Machine,
    queue_name: str,
    name: str,
    limit: int,
    lease_seconds: float | None,
    now_ns: int,
    most_bytes: int | None = None,
) -> Handout | None:
    """Lease the next messages, by priority and then index; None if there is nothing now.

    ``lease_seconds`` overrides the subscription's own.
    """
    check_whole("limit", limit, 1)
    if lease_seconds is not None:
        check_seconds("lease_seconds", lease_seconds)
    wants = [Want(limit, most_bytes)]
    handout, _ = receive_each(machine, queue_name, name, wants, lease_seconds, now_ns)
    return handout


def receive_each(
    machine: Machine,
    queue_name: str,
    name: str,
    wants: Sequence[Want],
    lease_seconds: float | None,
    now_ns: int,
) -> tuple[Handout | None, list[list[Run]]]:
    """Like `receive`, for several consumers at once: the whole delivery, and the share of each.

    The first consumer gets the first messages. Those for whom nothing is left have no share. The
    arguments have been checked, so that a wrong one fails nobody else.
    """
    subscription = machine.subscription(queue_name, name)
    _settle_what_is_due(machine, subscription, now_ns)
    room = 0 if subscription.config.paused else subscription.room
    total = min(room, sum(want.limit for want in wants))
    ready = subscription.ready_runs(total) if total > 0 else []
    if not ready:
        return None, []
    shares = _shares(subscription.queue, ready, wants)
    runs = cut(ready, sum(stop - start for share in shares for start, stop in share))
    return _lease(machine, subscription, runs, lease_seconds, now_ns), shares


def _shares(queue: Queue, runs: list[Run], wants: Sequence[Want]) -> list[list[Run]]:
    left = runs[::-1]
    shares: list[list[Run]] = []
    for limit, most_bytes in wants:
        share = _take(left, limit)
        if not share:
            break
        if most_bytes is not None and limit > 1:  # one is never too many
            fitting = _within(queue, share, most_bytes)
            left += reversed(share)
            share = _take(left, sum(stop - start for start, stop in fitting))
        shares.append(share)
    return shares


def _take(left: list[Run], limit: int) -> list[Run]:
    """Pop up to ``limit`` indexes off a reversed list of runs."""
    taken: list[Run] = []
    while left and limit > 0:
        start, stop = left.pop()
        end = min(stop, start + limit)
        taken.append((start, end))
        limit -= end - start
        if end < stop:
            left.append((end, stop))
    return taken


def _surely_fit(queue: Queue, start: int, stop: int, most_bytes: int) -> bool:
    """Whether the messages ``[start, stop)`` fit, as they mostly do; seen without a walk."""
    if queue.source is not None or start < queue.first:
        return False  # the timeline does not know their sizes
    # Each average is rounded up, by one byte at most.
    return queue.timeline.bytes_within(start, stop) + stop - start <= most_bytes


def _within(queue: Queue, runs: list[Run], most_bytes: int) -> list[Run]:
    """The first of the runs, up to that many bytes. Messages count as their batch's average."""
    if runs and _surely_fit(queue, min(runs)[0], max(runs)[1], most_bytes):
        return runs
    found: list[Run] = []
    left = most_bytes
    for start, stop in runs:
        at = start
        while at < stop:
            size, end = queue.mean_bytes(at)
            end = min(end, stop)
            count = min(end - at, left // size) if size else end - at
            if not found and count < 1:
                count = 1
            if count > 0 and found and found[-1][1] == at and at != start:
                found[-1] = (found[-1][0], at + count)
            elif count > 0:
                found.append((at, at + count))
            if count < end - at:
                return found
            left -= count * size
            at = end
    return found


def _settle_what_is_due(machine: Machine, subscription: Subscription, now_ns: int) -> None:
    queue = subscription.queue
    if queue.expiry.heap or queue.config.message_ttl_seconds is not None:
        expire(machine, queue, now_ns)
    if subscription.deadlines.heap:
        end_leases(machine, subscription, now_ns)
    subscription.mature(now_ns)


def _deadline(subscription: Subscription, lease_seconds: float | None, now_ns: int) -> int | None:
    if lease_seconds is None:
        lease_seconds = subscription.config.lease_seconds
    return None if lease_seconds is None else now_ns + round(lease_seconds * NANOSECONDS)


def _lease(
    machine: Machine,
    subscription: Subscription,
    runs: list[Run],
    lease_seconds: float | None,
    now_ns: int,
) -> Handout:
    deadline_ns = _deadline(subscription, lease_seconds, now_ns)
    epoch = subscription.epoch + 1
    counts = _counts(subscription, runs)
    machine.emit(
        ev.Delivered(
            at_ns=now_ns,
            subscription_id=subscription.id,
            runs=ev.flat(runs),
            epoch=epoch,
            deadline_ns=deadline_ns,
        )
    )
    return Handout(subscription, runs, epoch, deadline_ns, counts)


def _counts(subscription: Subscription, runs: list[Run]) -> dict[int, int]:
    tried = subscription.attempts
    if not tried:
        return {}
    return {
        index: tried[index].deliveries + 1
        for start, stop in runs
        for index in range(start, stop)
        if index in tried
    }


def poll(
    machine: Machine,
    queue_name: str,
    name: str,
    start: int,
    count: int,
    now_ns: int,
    most_bytes: int | None = None,
) -> Handout | None:
    """Lease the messages ``[max(sent, start), min(acked + cap, start + count))``.

    `sent` is the cursor, `acked` the floor and `cap` the subscription's `max_in_flight`. The
    cursor moves to the end of that range; what it passed over stays ready for `receive` or
    `ask_again`. The range ends early before a message that may not be delivered yet, and once the
    messages reach ``most_bytes``.
    """
    subscription = machine.subscription(queue_name, name)
    check_whole("start", start, 0)
    check_whole("count", count, 1)
    _settle_what_is_due(machine, subscription, now_ns)
    if subscription.config.paused:
        return None
    queue = subscription.queue
    begin = max(subscription.cursor, start)
    end = min(subscription.floor + subscription.config.max_in_flight, start + count, queue.next)
    end = _first_unready(subscription, begin, end)
    room = subscription.room
    if begin >= end or room <= 0:
        return None
    runs = subscription.ready_within(begin, end)
    if sum(b - a for a, b in runs) > room:
        runs = cut(runs, room)
        end = runs[-1][1]
    if most_bytes is not None and runs:
        within = _within(queue, runs, most_bytes)
        if within != runs:
            runs = within
            end = runs[-1][1]
    deadline_ns = _deadline(subscription, None, now_ns)
    epoch = subscription.epoch + 1
    counts = _counts(subscription, runs)
    machine.emit(
        ev.Polled(
            at_ns=now_ns,
            subscription_id=subscription.id,
            runs=ev.flat(runs),
            epoch=epoch,
            deadline_ns=deadline_ns,
            stop=end,
        )
    )
    return Handout(subscription, runs, epoch, deadline_ns, counts) if runs else None


def _first_unready(subscription: Subscription, begin: int, end: int) -> int:
    """The lowest unsettled index in the range that is not ready and was never delivered."""
    ready = [run for lane in subscription.ready.values() for run in lane.within(begin, end)]
    feed = subscription.feed
    if subscription.parents:
        suspects = list(subscription.unsettled_within(begin, end))
    else:
        suspects = [(i, i + 1) for i in feed.special_within(begin, end)]
    for a, b in suspects:
        for index in range(a, b):
            if not (
                index in subscription.settled
                or index in subscription.leases
                or index in subscription.attempts
                or any(c <= index < d for c, d in ready)
            ):
                return index
    return end


def ask_again(machine: Machine, queue_name: str, name: str, index: int, now_ns: int) -> Handout:
    """Deliver one particular message once more, at the consumer's request.

    It must be unsettled, and delivered before or passed over by a poll. A lease that it still has
    ends. Raises `MessageNotFound`, or `NotLeased`, also while the subscription is paused or has
    `max_in_flight` messages in flight.
    """
    subscription = machine.subscription(queue_name, name)
    check_whole("index", index)
    if not subscription.queue.holds(index) or index not in subscription.feed.matched:
        raise MessageNotFound(f"queue {queue_name!r} holds no message {index} for {name!r}")
    _settle_what_is_due(machine, subscription, now_ns)
    if subscription.config.paused:
        raise NotLeased(f"subscription {name!r} is paused: resume it first")
    in_ready = any(index in lane for lane in subscription.ready.values())
    if not (index in subscription.leases or index in subscription.attempts or in_ready):
        raise NotLeased(
            f"message {index} was not delivered on {name!r} before, or is settled: "
            "receive or poll it instead"
        )
    if index in subscription.leases:
        machine.emit(
            ev.LeaseExpired(at_ns=now_ns, subscription_id=subscription.id, runs=[index, index + 1])
        )
    elif len(subscription.leases) >= subscription.config.max_in_flight:
        raise NotLeased(
            f"subscription {name!r} has {len(subscription.leases)} messages in flight, which is "
            "its max_in_flight: settle some first"
        )
    return _lease(machine, subscription, [(index, index + 1)], None, now_ns)

"""Dead letters: how a message becomes one, and how it stops being one."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core import events as ev
from penstock.core.config import check_text, check_whole
from penstock.core.limits import MAX_REASON_CHARACTERS
from penstock.core.machine import Machine
from penstock.core.message import parse_message_id
from penstock.core.new_queue import new_dead_letter_queue
from penstock.core.queue import Queue
from penstock.core.runs import Runs
from penstock.core.subscription import Subscription
from penstock.errors import MessageNotFound, NotHeld

__all__ = [
    "MAX_DELIVERIES_REASON",
    "bury",
    "bury_or",
    "cascade",
    "discard",
    "letters_of",
    "release",
    "replay",
]

MAX_DELIVERIES_REASON = "max-deliveries"


def bury_or(
    machine: Machine, subscription: Subscription, index: int, reason: str, now_ns: int
) -> bool:
    """After a failed delivery, expire or dead-letter the message if it is due.

    Returns False if it may be delivered again.
    """
    expires_ns = subscription.queue.expires_ns(index)
    if expires_ns is not None and expires_ns <= now_ns:
        machine.emit(
            ev.Expired(at_ns=now_ns, subscription_id=subscription.id, runs=[index, index + 1])
        )
        return True
    limit = subscription.config.max_deliveries
    if limit is not None and subscription.deliveries_of(index) >= limit:
        lease = subscription.leases.get(index)
        reason = reason or (lease.reason if lease else "") or MAX_DELIVERIES_REASON
        bury(machine, subscription, index, reason, now_ns)
        return True
    return False


def bury(
    machine: Machine, subscription: Subscription, index: int, reason: str, now_ns: int
) -> None:
    """Dead-letter a message, also for the dependent subscriptions whose policy is to cascade."""
    queue = subscription.queue
    letters = queue.dead_letters or new_dead_letter_queue(machine, queue, now_ns)
    event = ev.DeadLettered(
        at_ns=now_ns,
        subscription_id=subscription.id,
        subscription=subscription.name,
        dead_letter_queue_id=letters.id,
        index=index,
        letter_index=letters.next,
        deliveries=subscription.deliveries_of(index),
        reason=reason[:MAX_REASON_CHARACTERS],
    )
    machine.emit(event)
    if machine.on_buried is not None:
        machine.on_buried(queue, event)
    for child in subscription.children:
        if (
            child.config.on_dead_parent == "cascade"
            and index not in child.opened
            and not child.is_settled(index)
        ):
            bury(machine, child, index, f"dead-lettered by {subscription.name}", now_ns)


def cascade(machine: Machine, subscription: Subscription, now_ns: int) -> None:
    """Dead-letter what the parents had dead-lettered before this subscription waited for them."""
    if subscription.config.on_dead_parent == "cascade":
        dead = Runs(run for parent in subscription.parents for run in parent.dead)
        given_up = [part for run in subscription.held() for part in dead.within(*run)]
        for start, stop in given_up:
            for index in range(start, stop):
                bury(machine, subscription, index, "dead-lettered before", now_ns)


def letters_of(queue: Queue, ids: Iterable[str] | None) -> list[int]:
    """The letters' indexes in the dead-letter queue: all, or those of some message ids.

    An id names the message that failed, so it may match letters of several subscriptions.
    """
    letters = queue.dead_letters
    if letters is None:
        return []
    reader = letters.default
    if reader is None:
        return []
    there = reader.unsettled_within(letters.first, letters.next)
    found = [index for start, stop in there for index in range(start, stop)]
    if ids is None:
        return found
    wanted = set()
    for id in ids:
        check_text("an id", id)
        parsed = parse_message_id(id)
        if parsed is not None and queue.index_of(id) is not None:
            wanted.add(parsed.index)
    return [index for index in found if letters.letter(index).index in wanted]


def replay(machine: Machine, queue_name: str, ids: Iterable[str] | None, now_ns: int) -> int:
    """Return dead letters to the subscriptions they failed on; returns how many.

    Letters whose subscription is gone stay where they are.
    """
    queue = machine.queue(queue_name)
    indexes = letters_of(queue, ids)
    letters = queue.dead_letters
    if letters is None:
        return 0
    alive = [i for i in indexes if letters.letter(i).subscription_id in machine.subscriptions]
    if alive:
        machine.emit(
            ev.Replayed(at_ns=now_ns, dead_letter_queue_id=letters.id, letter_indexes=alive)
        )
    return len(alive)


def discard(machine: Machine, queue_name: str, ids: Iterable[str] | None, now_ns: int) -> int:
    """Remove dead letters for good; returns how many. Subscriptions they hold up keep waiting."""
    queue = machine.queue(queue_name)
    indexes = letters_of(queue, ids)
    if indexes and queue.dead_letters is not None:
        machine.emit(
            ev.Discarded(
                at_ns=now_ns,
                dead_letter_queue_id=queue.dead_letters.id,
                letter_indexes=indexes,
            )
        )
    return len(indexes)


def release(machine: Machine, queue_name: str, name: str, indexes: list[int], now_ns: int) -> None:
    """Deliver messages that a dependency holds back. Raises `MessageNotFound` or `NotHeld`."""
    subscription = machine.subscription(queue_name, name)
    for index in indexes:
        check_whole("an index", index)
        if not subscription.queue.holds(index):
            raise MessageNotFound(f"queue {queue_name!r} holds no message at index {index}")
        if (
            not subscription.parents
            or index in subscription.opened
            or subscription.is_settled(index)
        ):
            raise NotHeld(f"message {index} is not held back on subscription {name!r}")
    machine.emit(ev.Released(at_ns=now_ns, subscription_id=subscription.id, indexes=list(indexes)))

"""Commands on deliveries: ack, nack, extend, give back. By receipt, message id, or index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from penstock.core import events as ev
from penstock.core.config import check_list, check_seconds, check_text, check_whole
from penstock.core.dead_letters import bury_or
from penstock.core.delivery import Handout
from penstock.core.limits import MAX_REASON_CHARACTERS, NANOSECONDS
from penstock.core.machine import Machine
from penstock.core.message import Delivery
from penstock.core.outcome import Outcome
from penstock.core.receipt import Receipt, receipt_text
from penstock.core.retention import end_leases
from penstock.core.runs import Run, Runs, runs_of
from penstock.core.subscription import Subscription
from penstock.errors import InvalidArgument, InvalidReceipt

__all__ = [
    "MAX_EXTENSION_SECONDS",
    "Outcome",
    "Target",
    "ack",
    "ack_up_to",
    "check_delay",
    "check_extension",
    "check_reason",
    "check_targets",
    "extend",
    "give_back",
    "nack",
    "undo",
]


MAX_EXTENSION_SECONDS = 1_000_000_000.0
"""No lease ends later than this from now, however often it is extended."""

Target = str | Delivery
"""What to settle: a delivery, its receipt, or a message's id."""


def ack(
    machine: Machine, queue_name: str, name: str, targets: Sequence[Target], now_ns: int
) -> list[Outcome]:
    """Ack deliveries, receipts or message ids. Returns an outcome for each.

    A delivery or receipt acks that delivery and no later one; a late ack counts as long as nobody
    else got the message. An id acks the message in whatever state it is. Both are idempotent.
    """
    subscription = machine.subscription(queue_name, name)
    if type(targets) is not list:
        targets = _listed(targets)
    runs = _in_flight(subscription, targets)
    if runs is not None:
        outcomes = [Outcome.DONE] * len(targets)
    else:
        done, outcomes = [], []
        for target in targets:
            index, outcome = _ack_one(subscription, target)
            outcomes.append(outcome)
            if outcome is Outcome.DONE:
                done.append(index)
        runs = runs_of(done)
    if runs:
        machine.emit(ev.Acked(at_ns=now_ns, subscription_id=subscription.id, runs=ev.flat(runs)))
    return outcomes


def _listed(targets: object) -> Sequence[Target]:
    return check_list("targets", targets, "deliveries, receipts or message ids")


def _in_flight(subscription: Subscription, targets: Sequence[Target]) -> list[Run] | None:
    """The fast path: the messages, if every target is a live delivery of this subscription.

    Either all targets are deliveries, or all are receipts in canonical form. Otherwise None.
    """
    if targets and type(targets[0]) is str and "." not in targets[0]:
        return None  # an id
    try:
        by_epoch = _by_epoch(subscription.id, targets)
        runs = {epoch: runs_of(indexes) for epoch, indexes in by_epoch.items()}
    except (AttributeError, TypeError, ValueError):
        return None  # some are malformed: looking at them one by one tells which
    leases = subscription.leases
    for epoch, found in runs.items():
        for start, stop in found:
            if not leases.covers(start, stop, epoch):
                return None  # settled already, or given to somebody else
    if len(runs) == 1:
        return found
    return list(Runs(run for found in runs.values() for run in found))


def _by_epoch(own_id: int, targets: Sequence[Target]) -> dict[int, list[int]]:
    """The indexes of each epoch. Raises some error unless all targets are of this subscription."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    if targets and type(targets[0]) is str:
        for target in targets:
            if not isinstance(target, str):
                raise ValueError("receipts and deliveries are mixed")
            _, index, epoch = map(int, target.split("."))
            if target != receipt_text(own_id, index, epoch):
                raise ValueError("a receipt of another subscription, or none")
            found[epoch].append(index)
        return found
    for target in targets:
        if (
            type(target) is not Delivery
            or target.subscription_id != own_id
            or type(target.index) is not int
        ):
            raise ValueError("a delivery of another subscription, or none")
        found[target.epoch].append(target.index)
    return found


def _ack_one(subscription: Subscription, target: Target) -> tuple[int, Outcome]:
    index, epoch = _find(subscription, target)
    if index is None:
        return 0, Outcome.NOT_FOUND
    lease = subscription.leases.get(index)
    if lease is not None and (epoch is None or lease.epoch == epoch):
        return index, Outcome.DONE
    return index, _without_lease(subscription, index, epoch)


def _find(subscription: Subscription, target: Target) -> tuple[int | None, int | None]:
    """The index and epoch that a target names; a message id has no epoch."""
    if isinstance(target, Delivery):
        check_whole("the index of a delivery", target.index)
        receipt = Receipt(target.subscription_id, target.index, target.epoch)
    elif not isinstance(target, str):
        raise InvalidArgument(
            f"a target is {type(target).__name__}: pass deliveries, receipts or message ids"
        )
    elif len(target) == 36 and target[8] == "-":
        return subscription.queue.index_of(target), None
    else:
        receipt = Receipt.parse(target)
    if receipt.subscription_id != subscription.id:
        raise InvalidReceipt(
            f"receipt {receipt.text!r} does not belong to subscription {subscription.name!r} "
            f"of queue {subscription.queue.name!r}"
        )
    return receipt.index, receipt.epoch


def _without_lease(subscription: Subscription, index: int, epoch: int | None) -> Outcome:
    """The outcome of an ack for a message that is not in flight with that epoch."""
    if index >= subscription.queue.next:
        return Outcome.NOT_FOUND
    if index in subscription.settled:
        return Outcome.ALREADY_SETTLED
    if epoch is None:
        return Outcome.DONE if index in subscription.feed.matched else Outcome.ALREADY_SETTLED
    tried = subscription.attempts.get(index)
    if tried is not None and tried.epoch == epoch:
        return Outcome.DONE
    return Outcome.NOT_LEASED


def ack_up_to(machine: Machine, queue_name: str, name: str, index: int, now_ns: int) -> int:
    """Ack everything below an index, delivered or not; returns how many messages that settled.

    What a dependency still holds back is left alone, since it was never delivered.
    """
    subscription = machine.subscription(queue_name, name)
    check_whole("index", index)
    stop = min(index, subscription.queue.next)
    runs = list(subscription.unsettled_within(subscription.floor, stop))
    if subscription.parents:
        runs = [part for run in runs for part in subscription.opened.within(*run)]
    if runs:
        machine.emit(ev.Acked(at_ns=now_ns, subscription_id=subscription.id, runs=ev.flat(runs)))
    return sum(b - a for a, b in runs)


def nack(
    machine: Machine,
    queue_name: str,
    name: str,
    targets: Sequence[Target],
    delay_seconds: float | None,
    reason: str,
    now_ns: int,
) -> list[Outcome]:
    """Say that deliveries failed. ``delay_seconds`` overrides the subscription's backoff.

    A message that failed too often becomes a dead letter with this reason.
    """
    subscription = machine.subscription(queue_name, name)
    check_delay(delay_seconds)
    reason = check_reason(reason)
    targets = _listed(targets)
    outcomes, indexes = _leased(machine, subscription, targets, now_ns)
    backoff = subscription.config.backoff
    again: list[int] = []
    due_ns: list[int] = []
    for index in indexes:
        if bury_or(machine, subscription, index, reason, now_ns):
            continue
        seconds = delay_seconds
        if seconds is None:
            seconds = backoff.delay_seconds(subscription.deliveries_of(index), machine.rng)
        again.append(index)
        due_ns.append(now_ns + round(seconds * NANOSECONDS) if seconds > 0 else 0)
    if again:
        machine.emit(
            ev.Nacked(
                at_ns=now_ns,
                subscription_id=subscription.id,
                indexes=again,
                due_ns=due_ns,
                reason=reason,
            )
        )
    return outcomes


def give_back(
    machine: Machine, queue_name: str, name: str, targets: Sequence[Target], now_ns: int
) -> list[Outcome]:
    """Take back deliveries that nobody got or has started on: they do not count.

    A message whose time ran out in the meantime expires.
    """
    subscription = machine.subscription(queue_name, name)
    outcomes, indexes = _leased(machine, subscription, _listed(targets), now_ns)
    _take_back(machine, subscription, indexes, now_ns)
    return outcomes


def undo(machine: Machine, handout: Handout, now_ns: int) -> None:
    """Take back what was leased for a caller who is gone, as far as it is still in flight."""
    subscription = handout.subscription
    if machine.subscriptions.get(subscription.id) is subscription:
        indexes = [
            index
            for run in handout.runs
            for start, stop, lease in subscription.leases.within(*run)
            if lease.epoch == handout.epoch
            for index in range(start, stop)
        ]
        _take_back(machine, subscription, indexes, now_ns)


def _take_back(
    machine: Machine, subscription: Subscription, indexes: list[int], now_ns: int
) -> None:
    over = [index for index in indexes if _is_over(subscription, index, now_ns)]
    if over:
        runs = ev.flat(runs_of(over))
        machine.emit(ev.Expired(at_ns=now_ns, subscription_id=subscription.id, runs=runs))
    kept = [index for index in indexes if index in subscription.leases]
    if kept:
        runs = ev.flat(runs_of(kept))
        machine.emit(ev.Returned(at_ns=now_ns, subscription_id=subscription.id, runs=runs))


def _is_over(subscription: Subscription, index: int, now_ns: int) -> bool:
    expires_ns = subscription.queue.expires_ns(index)
    return expires_ns is not None and expires_ns <= now_ns


def extend(
    machine: Machine,
    queue_name: str,
    name: str,
    targets: Sequence[Target],
    seconds: float,
    now_ns: int,
    *,
    further: bool = False,
) -> list[Outcome]:
    """Let the leases end ``seconds`` from now or, with ``further``, that much later.

    With ``further``, a lease without a deadline stays without one.
    """
    subscription = machine.subscription(queue_name, name)
    check_extension(seconds)
    targets = _listed(targets)
    outcomes, indexes = _leased(machine, subscription, targets, now_ns)
    longer_ns = round(seconds * NANOSECONDS)
    ends: dict[int, list[int]] = {} if further or not indexes else {now_ns + longer_ns: indexes}
    if further:
        latest_ns = now_ns + round(MAX_EXTENSION_SECONDS * NANOSECONDS)
        for index in indexes:
            lease = subscription.leases.get(index)
            end_ns = lease.deadline_ns if lease else None
            if end_ns is not None:
                ends.setdefault(min(end_ns + longer_ns, latest_ns), []).append(index)
    for deadline_ns, ending in ends.items():
        machine.emit(
            ev.Extended(
                at_ns=now_ns,
                subscription_id=subscription.id,
                indexes=ending,
                deadline_ns=deadline_ns,
            )
        )
    return outcomes


def check_targets(subscription: Subscription, targets: Sequence[Target]) -> None:
    """Raises `InvalidReceipt` or `InvalidArgument` if settling these would."""
    for target in _listed(targets):
        _find(subscription, target)


def check_delay(delay_seconds: float | None) -> None:
    if delay_seconds is not None:
        check_seconds("delay_seconds", delay_seconds, zero=True)


def check_extension(seconds: float) -> None:
    check_seconds("seconds", seconds, most=MAX_EXTENSION_SECONDS)


def check_reason(reason: object) -> str:
    """Returns as much of it as is kept."""
    return check_text("reason", reason)[:MAX_REASON_CHARACTERS]


def _leased(
    machine: Machine, subscription: Subscription, targets: Sequence[Target], now_ns: int
) -> tuple[list[Outcome], list[int]]:
    """The outcomes, and the indexes of the targets that are in flight."""
    end_leases(machine, subscription, now_ns)
    outcomes: list[Outcome] = []
    indexes: dict[int, None] = {}
    for target in targets:
        index, epoch = _find(subscription, target)
        if index is None or index >= subscription.queue.next:
            outcomes.append(Outcome.NOT_FOUND)
            continue
        lease = subscription.leases.get(index)
        if lease is not None and (epoch is None or lease.epoch == epoch):
            indexes[index] = None
            outcomes.append(Outcome.DONE)
        elif subscription.is_settled(index):
            outcomes.append(Outcome.ALREADY_SETTLED)
        else:
            outcomes.append(Outcome.NOT_LEASED)
    return outcomes, list(indexes)

"""What the events queue of a queue tells must be what happened: every row, and each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.core.config import DEFAULT_SUBSCRIPTION
from penstock.core.lifecycle import LifecycleRun, runs_in
from penstock.core.message import Message
from penstock.core.queue import Queue
from penstock.core.subscription import Subscription
from tests.simulation.history import Violation


def check_told(queue: Queue, messages: Sequence[Message], untold: list[LifecycleRun]) -> None:
    """``messages`` are all of the events queue, from its first index on."""
    runs = [run for message in messages for run in runs_in(message.body)] + untold
    published = Counter(
        index for run in runs if run.event == "published" for index in range(run.start, run.stop)
    )
    if published != Counter(range(queue.next)):
        wrong = {i: n for i, n in published.items() if n != 1 or i >= queue.next}
        missing = sorted(set(range(queue.next)) - published.keys())
        raise Violation(
            "told once",
            f"{queue.name}: published rows are missing for {missing} and wrong for {wrong}",
            [queue.name],
        )
    for subscription in queue.subscriptions.values():
        own = [run for run in runs if run.subscription == subscription.name]
        # One of the same name may have been deleted before.
        is_first = all(run.at_ns > subscription.created_ns for run in own)
        if is_first or subscription.name == DEFAULT_SUBSCRIPTION:
            _check_reader(subscription, own)


def _check_reader(subscription: Subscription, runs: list[LifecycleRun]) -> None:
    told: Counter[str] = Counter()
    for run in runs:
        told[run.event] += run.stop - run.start
    counters = subscription.counters
    happened = {
        "delivered": counters.delivered,
        "returned": counters.returned,
        "acked": counters.acked,
        "nacked": counters.nacked + counters.leases_expired,
        "expired": counters.expired,
        "dead_lettered": counters.dead_lettered,
    }
    for event, count in happened.items():
        if told[event] != count:
            where = f"{subscription.queue.name}/{subscription.name}"
            raise Violation("told once", f"{where}: {count} {event}, but {told[event]} told")

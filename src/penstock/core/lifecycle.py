"""Lifecycle events: what happens to a queue's messages, as messages of ``<queue>-events``.

A queue with the setting `events` publishes them there, one message per command. The rule that makes
each row appear exactly once, crash or no crash:

> A row is made when its event is applied, and stays *untold* until a `Published` event of the
> events queue takes everything that is untold.

`Machine.apply` does both, live and at recovery, so replaying the log makes rows and takes them
just as before. What a crash left untold is published with the next command. A row describes the
state before its event: how often a message had been delivered, when it was published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Literal, Protocol

import msgspec

from penstock.core import events as ev
from penstock.core.queue import Queue
from penstock.core.runs import Run, runs_of
from penstock.core.subscription import Subscription

__all__ = [
    "EVENTS_CONTENT_TYPE",
    "LEASE_EXPIRED_REASON",
    "Kind",
    "LifecycleRun",
    "bodies_of",
    "runs_in",
    "runs_of_event",
]

EVENTS_CONTENT_TYPE = "application/vnd.penstock.events+json"
LEASE_EXPIRED_REASON = "lease-expired"

# A message of the events queue has about this many runs at most.
_RUNS = 1000

Kind = Literal[
    "published",
    "delivered",
    "returned",
    "acked",
    "nacked",
    "expired",
    "dead_lettered",
    "replayed",
]


class LifecycleRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The same event for the messages ``start <= index < stop``, which were published together.

    `deliveries` is how often they were delivered, None if never. `nacked` is any delivery that
    failed, including one whose lease expired.
    """

    event: Kind
    start: int
    stop: int
    published_ns: int
    at_ns: int
    subscription: str | None = None
    deliveries: int | None = None
    reason: str | None = None
    topic: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[LifecycleRun]).decode


def bodies_of(runs: list[LifecycleRun]) -> list[bytes]:
    """The bodies for the events queue: one, unless it would be very large."""
    return [_encode(runs[at : at + _RUNS]) for at in range(0, len(runs), _RUNS)]


def runs_in(body: bytes) -> list[LifecycleRun]:
    """The runs in a message of the events queue."""
    return _decode(body)


class State(Protocol):
    """The part of the machine that is read here."""

    queues_by_id: dict[int, Queue]
    subscriptions: dict[int, Subscription]


def runs_of_event(state: State, event: ev.Event) -> tuple[Queue, list[LifecycleRun]] | None:
    """The runs of an event that is about to be applied, and their queue. None if it has none."""
    match event:
        case ev.Published():
            queue = state.queues_by_id[event.queue_id]
            return (queue, list(_published(event))) if queue.config.events else None
        case ev.Replayed():
            letters = state.queues_by_id[event.dead_letter_queue_id]
            source = letters.source
            if source is None or not source.config.events:
                return None
            return source, list(_replayed(state, source, letters, event))
    subscription = _reader(state, event)
    if subscription is None or not subscription.queue.config.events:
        return None
    return subscription.queue, list(_happened(subscription, event))


def _reader(state: State, event: ev.Event) -> Subscription | None:
    subscription_id = getattr(event, "subscription_id", None)
    return None if subscription_id is None else state.subscriptions.get(subscription_id)


def _published(event: ev.Published) -> Iterator[LifecycleRun]:
    start = event.first
    topics: Iterable[str | None] = [None] * event.count
    if event.envelopes is not None:
        topics = [envelope.topic for envelope in event.envelopes]
    for topic, group in groupby(topics):
        stop = start + sum(1 for _ in group)
        yield LifecycleRun(
            event="published",
            start=start,
            stop=stop,
            published_ns=event.at_ns,
            at_ns=event.at_ns,
            topic=topic,
        )
        start = stop


def _replayed(
    state: State, source: Queue, letters: Queue, event: ev.Replayed
) -> Iterator[LifecycleRun]:
    for letter_index in event.letter_indexes:
        letter = letters.letter(letter_index)
        reader = state.subscriptions.get(letter.subscription_id)
        for published_ns, (start, stop) in _spans(source, (letter.index, letter.index + 1)):
            yield LifecycleRun(
                event="replayed",
                start=start,
                stop=stop,
                published_ns=published_ns,
                at_ns=event.at_ns,
                subscription=reader.name if reader else None,
            )


def _happened(reader: Subscription, event: ev.Event) -> Iterator[LifecycleRun]:
    match event:
        case ev.Delivered(runs=runs) | ev.Polled(runs=runs):
            yield from _runs(reader, "delivered", ev.pairs(runs), event.at_ns, given=1)
        case ev.Acked(runs=runs):
            yield from _runs(reader, "acked", ev.pairs(runs), event.at_ns)
        case ev.Expired(runs=runs):
            yield from _runs(reader, "expired", ev.pairs(runs), event.at_ns)
        case ev.Returned(runs=runs):
            yield from _runs(reader, "returned", ev.pairs(runs), event.at_ns)
        case ev.LeaseExpired(runs=runs):
            pairs = ev.pairs(runs)
            yield from _runs(reader, "nacked", pairs, event.at_ns, LEASE_EXPIRED_REASON)
        case ev.Nacked(indexes=indexes, reason=reason):
            yield from _runs(reader, "nacked", runs_of(indexes), event.at_ns, reason or None)
        case ev.DeadLettered(index=index, reason=reason):
            one = [(index, index + 1)]
            yield from _runs(reader, "dead_lettered", one, event.at_ns, reason)


def _runs(
    reader: Subscription,
    kind: Kind,
    runs: list[Run],
    at_ns: int,
    reason: str | None = None,
    *,
    given: int = 0,
) -> Iterator[LifecycleRun]:
    """``given`` is added to each message's delivery count."""
    is_known = bool(reader.leases or reader.attempts)
    for run in runs:
        for published_ns, (start, stop) in _spans(reader.queue, run):
            counts: Iterable[tuple[int, Run]] = [(0, (start, stop))]
            if is_known:
                counts = _by_count(reader, start, stop)
            for count, (a, b) in counts:
                yield LifecycleRun(
                    event=kind,
                    start=a,
                    stop=b,
                    published_ns=published_ns,
                    at_ns=at_ns,
                    subscription=reader.name,
                    deliveries=count + given or None,
                    reason=reason,
                )


def _by_count(reader: Subscription, start: int, stop: int) -> Iterator[tuple[int, Run]]:
    for count, group in groupby(range(start, stop), reader.deliveries_of):
        indexes = list(group)
        yield count, (indexes[0], indexes[-1] + 1)


def _spans(queue: Queue, run: Run) -> Iterator[tuple[int, Run]]:
    """The parts of a run that were published together, each with the time of its publish."""
    start, stop = run
    while start < stop and start < queue.first:
        batch = queue.stragglers.get(start)
        if batch is not None:
            yield batch.created_ns, (start, start + 1)
        start += 1
    if start >= stop:
        return
    batches = queue.timeline.batches(start, stop)
    for at, batch in enumerate(batches):
        end = batches[at + 1].first if at + 1 < len(batches) else stop
        yield batch.created_ns, (max(start, batch.first), end)

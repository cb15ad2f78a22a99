"""Applying events that come after a gap in the history.

Some events are lost, so those that follow cannot simply be applied: a lease may end that was never
seen to begin, or a dead letter may be of an unknown message. The rules prefer redelivering a
message to losing it:

* A message that can be read is kept. Indexes of messages that cannot be read are *lost*: nobody
  waits for them, and readers of the queue skip them.
* Everything that settles a message counts: acks, expiry, dead letters, purges, operators' actions.
* Of deliveries, only the count is kept. In the end no message is in flight, all receipts are void,
  and everything not known to be settled is redelivered. (`Subscription.start_over`)
* A dead letter that is lost while its message is not goes back to where it failed.
* Dependencies hold as before: what a subscription is not known to have settled is delivered to it
  again, and those that wait for it get it only afterwards.
* Definitions are applied as they come. A queue of which only the id is known is named
  ``recovered-<id>`` and gets its default subscription; events of a subscription that was created in
  the gap are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from penstock.core import events as ev
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.dependencies import check_dependencies
from penstock.core.lease import Attempts
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX
from penstock.core.machine import Machine, Place
from penstock.core.queue import Letter, Queue
from penstock.core.runs import Run
from penstock.core.subscription import Subscription
from penstock.errors import InvalidDependency

__all__ = ["GappedHistory"]

# More ids than may have been assigned in a gap, which must not be assigned again.
_LOST_IDS = 2**16


class GappedHistory:
    """Applies what is left of a history to a machine. Call `finish` after the last event.

    ``lose(queue, stop)`` must mark the unknown indexes of a queue below ``stop`` as lost.
    ``left_out`` counts the events, by kind, that were of no use any more.
    """

    def __init__(self, machine: Machine, lose: Callable[[Queue, int], None]) -> None:
        self.left_out: Counter[str] = Counter()
        self._machine = machine
        self._lose = lose

    def apply(self, event: ev.Event, place: Place) -> bool:
        """False if the event was of no use."""
        machine = self._machine
        machine.now_ns = max(machine.now_ns, event.at_ns)
        last_id = machine.last_id
        is_used = self._apply(event, place)
        if not is_used:
            self.left_out[type(event).__name__] += 1
        machine.last_id = max(last_id, machine.last_id)
        return is_used

    def finish(self) -> None:
        for subscription in self._machine.subscriptions.values():
            subscription.start_over()
        self._machine.last_id += _LOST_IDS

    def _apply(self, event: ev.Event, place: Place) -> bool:
        match event:
            case ev.QueueCreated() | ev.QueueAltered() | ev.QueueDeleted() | ev.QueuePurged():
                return self._queue_defined(event)
            case ev.SubscriptionCreated():
                return self._subscription_created(event)
            case ev.SubscriptionAltered() | ev.SubscriptionDeleted() | ev.Sought():
                return self._subscription_changed(event)
            case ev.Published() | ev.Lost():
                return self._published(event, place)
            case ev.Trimmed():
                return self._trimmed(event)
            case ev.DeadLettered():
                return self._dead_lettered(event, place)
            case ev.Replayed() | ev.Discarded():
                return self._letters_left(event)
            case ev.Extended() | ev.LeaseExpired() | ev.EpochsSkipped():
                return False
            case _:
                return self._progressed(event)

    # Definitions.

    def _queue_defined(
        self, event: ev.QueueCreated | ev.QueueAltered | ev.QueueDeleted | ev.QueuePurged
    ) -> bool:
        machine = self._machine
        if isinstance(event, ev.QueueCreated):
            same = machine.queues.get(event.name)
            if event.queue_id in machine.queues_by_id:
                return False
            if same is not None:
                # Names are unique, so the old queue must have been deleted in the gap.
                gone = same.source or same.events_of or same
                machine.apply(ev.QueueDeleted(at_ns=event.at_ns, queue_id=gone.id))
            event = self._named_after_its_owner(event)
        elif event.queue_id not in machine.queues_by_id:
            return False
        machine.apply(event)
        return True

    def _named_after_its_owner(self, event: ev.QueueCreated) -> ev.QueueCreated:
        """An owner that is recovered has another name, by which these queues are found."""
        for owner, suffix in (
            (event.dead_letters_of, DEAD_LETTER_SUFFIX),
            (event.events_of, EVENTS_SUFFIX),
        ):
            if owner is not None:
                event = msgspec.structs.replace(event, name=self._queue(owner).name + suffix)
        return event

    def _queue(self, queue_id: int) -> Queue:
        """The queue with that id, created if it is unknown."""
        found = self._machine.queues_by_id.get(queue_id)
        if found is not None:
            return found
        name = f"recovered-{queue_id}"
        while name in self._machine.queues:
            name += "-"
        return self._create(queue_id, name, None)

    def _create(self, queue_id: int, name: str, source: Queue | None) -> Queue:
        machine = self._machine
        machine.apply(
            ev.QueueCreated(
                at_ns=machine.now_ns,
                queue_id=queue_id,
                name=name,
                config=QueueConfig(),
                salt=machine.rng.getrandbits(32),
                dead_letters_of=source.id if source else None,
                default=SubscriptionConfig(max_deliveries=None) if source else SubscriptionConfig(),
            )
        )
        return machine.queues_by_id[queue_id]

    def _subscription_created(self, event: ev.SubscriptionCreated) -> bool:
        machine = self._machine
        if event.subscription_id in machine.subscriptions:
            return False
        queue = self._queue(event.queue_id)
        self._lose(queue, max(event.start, event.since))
        same = queue.subscriptions.get(event.name)
        if same is not None:
            machine.apply(ev.SubscriptionDeleted(at_ns=event.at_ns, subscription_id=same.id))
        config = self._with_known_parents(queue, event.name, event.config)
        backfill = _known(queue, event.backfill)
        machine.apply(msgspec.structs.replace(event, config=config, backfill=backfill))
        return True

    def _subscription_changed(
        self, event: ev.SubscriptionAltered | ev.SubscriptionDeleted | ev.Sought
    ) -> bool:
        subscription = self._machine.subscriptions.get(event.subscription_id)
        if subscription is None:
            return False
        queue = subscription.queue
        if isinstance(event, ev.SubscriptionAltered):
            config = self._with_known_parents(queue, subscription.name, event.config)
            event = msgspec.structs.replace(event, config=config)
        elif isinstance(event, ev.Sought):
            self._lose(queue, max(event.index, event.since))
            event = msgspec.structs.replace(event, backfill=_known(queue, event.backfill))
        self._machine.apply(event)
        return True

    def _with_known_parents(
        self, queue: Queue, name: str, config: SubscriptionConfig
    ) -> SubscriptionConfig:
        after = tuple(parent for parent in config.after if parent in queue.subscriptions)
        graph = {other.name: other.config.after for other in queue.subscriptions.values()}
        try:
            check_dependencies(name, after, graph)
        except InvalidDependency:
            # Those that waited for this one must have been altered in the gap.
            for other in queue.subscriptions.values():
                rest = tuple(parent for parent in other.config.after if parent != name)
                other.config = msgspec.structs.replace(other.config, after=rest)
                queue.link(other)
        return msgspec.structs.replace(config, after=after)

    # Messages.

    def _published(self, event: ev.Published | ev.Lost, place: Place) -> bool:
        machine = self._machine
        is_new = event.queue_id not in machine.queues_by_id
        queue = self._queue(event.queue_id)
        if event.first < queue.next:
            return False
        self._lose(queue, event.first)
        if is_new:
            # Treat what came before as removed long ago.
            queue.trim(event.first)
        machine.apply(event, place)
        return True

    def _trimmed(self, event: ev.Trimmed) -> bool:
        queue = self._machine.queues_by_id.get(event.queue_id)
        if queue is None or event.first <= queue.first:
            return False
        self._lose(queue, event.first)
        queue.trim(event.first)
        return True

    def _progressed(
        self,
        event: ev.Delivered
        | ev.Polled
        | ev.Returned
        | ev.Acked
        | ev.Expired
        | ev.Nacked
        | ev.Released,
    ) -> bool:
        subscription = self._machine.subscriptions.get(event.subscription_id)
        if subscription is None:
            return False
        if isinstance(event, ev.Nacked | ev.Released):
            self._lose(subscription.queue, max(event.indexes, default=-1) + 1)
        else:
            self._lose(subscription.queue, max(event.runs[1::2], default=0))
        match event:
            case ev.Delivered() | ev.Polled():
                _count_deliveries(subscription, event)
            case ev.Returned():
                _uncount_deliveries(subscription, event)
            case ev.Acked():
                subscription.ack(_unsettled(subscription, ev.pairs(event.runs)), event.at_ns)
            case ev.Expired():
                subscription.settle(_unsettled(subscription, ev.pairs(event.runs)), "expired")
            case ev.Nacked():
                for index in event.indexes:
                    tried = subscription.attempts.get(index)
                    if tried is not None:
                        subscription.attempts[index] = tried._replace(reason=event.reason)
            case ev.Released():
                self._machine.apply(event)
        return True

    # Dead letters.

    def _dead_lettered(self, event: ev.DeadLettered, place: Place) -> bool:
        machine = self._machine
        subscription = machine.subscriptions.get(event.subscription_id)
        letters = machine.queues_by_id.get(event.dead_letter_queue_id)
        if subscription is not None and subscription.queue.dead_letters is None:
            letters = self._dead_letter_queue(event.dead_letter_queue_id, subscription.queue)
        if letters is None or letters.source is None or event.letter_index < letters.next:
            return False
        source = letters.source
        self._lose(letters, event.letter_index)
        self._lose(source, event.index + 1)
        letters.append_letter(
            Letter(event.subscription_id, event.index),
            at_ns=event.at_ns,
            locator=place.locator,
            length=place.length,
            source=source,
        )
        if subscription is not None and not subscription.is_settled(event.index):
            subscription.bury(event.index)
        is_readable = source.holds(event.index) and event.index in source.feeds.everything.matched
        if not is_readable and letters.default is not None:
            letters.default.settle([(event.letter_index, event.letter_index + 1)], "expired")
        return True

    def _dead_letter_queue(self, queue_id: int, source: Queue) -> Queue:
        """A dead-letter queue that was created in the gap, as the event shows."""
        name = source.name + DEAD_LETTER_SUFFIX
        known = self._machine.queues_by_id.get(queue_id)
        if known is None:
            return self._create(queue_id, name, source)
        del self._machine.queues[known.name]
        known.name = name
        self._machine.add_queue(known, source.id)
        return known

    def _letters_left(self, event: ev.Replayed | ev.Discarded) -> bool:
        letters = self._machine.queues_by_id.get(event.dead_letter_queue_id)
        if letters is None or letters.default is None:
            return False
        self._lose(letters, max(event.letter_indexes, default=-1) + 1)
        reader = letters.default
        there = [
            index
            for index in event.letter_indexes
            if index >= letters.first and not reader.is_settled(index)
        ]
        if there:
            self._machine.apply(msgspec.structs.replace(event, letter_indexes=there))
        return bool(there)


def _known(queue: Queue, bounds: list[int]) -> list[int]:
    """The parts of some runs that are not lost."""
    matched = queue.feeds.everything.matched
    return ev.flat([part for run in ev.pairs(bounds) for part in matched.within(*run)])


def _unsettled(subscription: Subscription, runs: Iterable[Run]) -> list[Run]:
    return [part for run in runs for part in subscription.unsettled_within(*run)]


def _count_deliveries(subscription: Subscription, event: ev.Delivered | ev.Polled) -> None:
    subscription.epoch = max(subscription.epoch, event.epoch)
    for start, stop in _unsettled(subscription, ev.pairs(event.runs)):
        for index in range(start, stop):
            deliveries = subscription.deliveries_of(index) + 1
            subscription.leases.drop(index, index + 1)
            subscription.attempts[index] = Attempts(deliveries, 0, "")


def _uncount_deliveries(subscription: Subscription, event: ev.Returned) -> None:
    for start, stop in ev.pairs(event.runs):
        for index in range(start, stop):
            tried = subscription.attempts.pop(index, None)
            if tried is not None and tried.deliveries > 1:
                subscription.attempts[index] = tried._replace(deliveries=tried.deliveries - 1)

"""The machine: all queues and subscriptions, changed by events and by nothing else.

Commands (the modules `definitions`, `publishing`, `delivery`, `settling`, `dead_letters` and
`retention`) read the state, decide, and *emit* events. Emitting appends the event to the journal
and then applies it, so the state in memory is never ahead of what is on its way to the log.
Recovery applies the same events again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple, Protocol

from penstock.core import events as ev
from penstock.core.config import DEFAULT_SUBSCRIPTION
from penstock.core.lifecycle import LifecycleRun, runs_of_event
from penstock.core.queue import Letter, Queue
from penstock.core.subscription import Subscription
from penstock.errors import QueueNotFound

__all__ = ["Journal", "Machine", "Place"]


class Place(NamedTuple):
    """Where the journal keeps an event. Only the journal interprets it."""

    locator: int
    length: int


NOWHERE = Place(0, 0)

# More than the receives that can have been answered but not yet written.
_FORGOTTEN_EPOCHS = 2**32


class Journal(Protocol):
    """Gets every event, in order, before it is applied. Never blocks."""

    def append(self, event: ev.Event) -> Place: ...


class Machine:
    """The state. Commands take the time as an argument; it never runs backwards in here."""

    def __init__(self, *, journal: Journal, rng: Random) -> None:
        self.journal = journal
        self.rng = rng
        self.queues: dict[str, Queue] = {}
        self.queues_by_id: dict[int, Queue] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.last_id = 0
        self.now_ns = 0
        # Lifecycle events not yet published, by the id of the observed queue: see `lifecycle`.
        self.untold: dict[int, list[LifecycleRun]] = {}
        self.is_observed = False  # whether any queue has `events` on
        # Called for every new dead letter, but not at recovery. It must not raise.
        self.on_buried: Callable[[Queue, ev.DeadLettered], None] | None = None

    def queue(self, name: str) -> Queue:
        """Raises `QueueNotFound`."""
        found = self.queues.get(name)
        if found is None:
            raise QueueNotFound(f"there is no queue {name!r}: create it first")
        return found

    def subscription(self, queue: str, name: str) -> Subscription:
        """Raises `QueueNotFound` or `SubscriptionNotFound`."""
        return self.queue(queue).subscription(name)

    def advance(self, now_ns: int) -> int:
        """The time for a command: the clock's, or the latest so far if the clock went back."""
        if now_ns > self.now_ns:
            self.now_ns = now_ns
        return self.now_ns

    def new_id(self) -> int:
        return self.last_id + 1

    def emit(self, event: ev.Event) -> None:
        self.apply(event, self.journal.append(event))

    def apply(self, event: ev.Event, place: Place = NOWHERE) -> None:
        if event.at_ns > self.now_ns:
            self.now_ns = event.at_ns
        if self.is_observed:
            self._observe(event)
        _APPLY[type(event)](self, event, place)

    def _observe(self, event: ev.Event) -> None:
        """Note the lifecycle events of an event that is about to be applied."""
        found = runs_of_event(self, event)
        if found is not None and found[1]:
            queue, runs = found
            self.untold.setdefault(queue.id, []).extend(runs)

    def observe(self) -> None:
        """Update `is_observed` after a definition changed."""
        self.is_observed = any(queue.config.events for queue in self.queues.values())

    # Definitions.

    def _queue_created(self, event: ev.QueueCreated, place: Place) -> None:
        queue = Queue(
            id=event.queue_id,
            name=event.name,
            config=event.config,
            salt=event.salt,
            created_ns=event.at_ns,
        )
        self.last_id = event.queue_id
        self.add_queue(queue, event.dead_letters_of, event.events_of)
        self.is_observed = self.is_observed or event.config.events
        if event.default is not None:
            created = ev.SubscriptionCreated(
                at_ns=event.at_ns,
                subscription_id=event.queue_id + 1,
                queue_id=event.queue_id,
                name=DEFAULT_SUBSCRIPTION,
                config=event.default,
                start=0,
                since=0,
            )
            self._subscription_created(created, place)

    def add_queue(
        self, queue: Queue, dead_letters_of: int | None, events_of: int | None = None
    ) -> None:
        self.queues[queue.name] = queue
        self.queues_by_id[queue.id] = queue
        if dead_letters_of is not None:
            source = self.queues_by_id[dead_letters_of]
            queue.source = source
            source.dead_letters = queue
        if events_of is not None:
            observed = self.queues_by_id[events_of]
            queue.events_of = observed
            observed.events = queue

    def _queue_altered(self, event: ev.QueueAltered, place: Place) -> None:
        queue = self.queues_by_id[event.queue_id]
        before = queue.config
        queue.config = event.config
        if event.config.message_ttl_seconds != before.message_ttl_seconds:
            queue.change_ttl()
        if event.config.events != before.events:
            self.observe()

    def _queue_deleted(self, event: ev.QueueDeleted, place: Place) -> None:
        queue = self.queues_by_id[event.queue_id]
        self.untold.pop(queue.id, None)
        for gone in _family(queue):
            if gone.name in self.queues:
                del self.queues[gone.name]
                del self.queues_by_id[gone.id]
                for subscription in gone.subscriptions.values():
                    del self.subscriptions[subscription.id]
                gone.vanish()
        if queue.config.events:
            self.observe()

    def _queue_purged(self, event: ev.QueuePurged, place: Place) -> None:
        self.queues_by_id[event.queue_id].purge()

    def _subscription_created(self, event: ev.SubscriptionCreated, place: Place) -> None:
        queue = self.queues_by_id[event.queue_id]
        feed = queue.feed_for(event.config.filter, event.subscription_id)
        queue.backfill(feed, event.since, ev.pairs(event.backfill))
        queue.look_again(event.start)
        self.last_id = event.subscription_id
        subscription = Subscription(
            id=event.subscription_id,
            name=event.name,
            config=event.config,
            queue=queue,
            feed=feed,
            start=event.start,
            created_ns=event.at_ns,
        )
        subscription.secrets = tuple(event.secrets)
        self.add_subscription(subscription)

    def add_subscription(self, subscription: Subscription) -> None:
        queue = subscription.queue
        queue.subscriptions[subscription.name] = subscription
        self.subscriptions[subscription.id] = subscription
        queue.link(subscription)

    def _subscription_altered(self, event: ev.SubscriptionAltered, place: Place) -> None:
        subscription = self.subscriptions[event.subscription_id]
        subscription.config = event.config
        if event.secrets is not None:
            subscription.secrets = tuple(event.secrets)
        subscription.queue.link(subscription)
        if subscription.parents:
            # `on_dead_parent` may have changed.
            subscription.parents_passed(0, subscription.queue.next)

    def _subscription_deleted(self, event: ev.SubscriptionDeleted, place: Place) -> None:
        subscription = self.subscriptions.pop(event.subscription_id)
        queue = subscription.queue
        queue.remove(subscription)
        queue.drop_feed(subscription.feed)
        queue.drop_stragglers()

    def _sought(self, event: ev.Sought, place: Place) -> None:
        subscription = self.subscriptions[event.subscription_id]
        queue = subscription.queue
        queue.backfill(subscription.feed, event.since, ev.pairs(event.backfill))
        queue.look_again(event.index)
        subscription.seek(event.index)
        queue.drop_stragglers()

    # Messages.

    def _published(self, event: ev.Published, place: Place) -> None:
        queue = self.queues_by_id[event.queue_id]
        queue.append(event, place.locator, place.length)
        if queue.events_of is not None:
            self.untold.pop(queue.events_of.id, None)

    def _delivered(self, event: ev.Delivered, place: Place) -> None:
        self.subscriptions[event.subscription_id].deliver(
            ev.pairs(event.runs), event.epoch, event.deadline_ns, event.at_ns
        )

    def _polled(self, event: ev.Polled, place: Place) -> None:
        self.subscriptions[event.subscription_id].poll(
            ev.pairs(event.runs), event.epoch, event.deadline_ns, event.stop, event.at_ns
        )

    def _extended(self, event: ev.Extended, place: Place) -> None:
        self.subscriptions[event.subscription_id].extend(event.indexes, event.deadline_ns)

    def _lease_expired(self, event: ev.LeaseExpired, place: Place) -> None:
        self.subscriptions[event.subscription_id].expire_leases(ev.pairs(event.runs))

    def _returned(self, event: ev.Returned, place: Place) -> None:
        self.subscriptions[event.subscription_id].take_back(ev.pairs(event.runs))

    def _acked(self, event: ev.Acked, place: Place) -> None:
        self.subscriptions[event.subscription_id].ack(ev.pairs(event.runs), event.at_ns)

    def _nacked(self, event: ev.Nacked, place: Place) -> None:
        self.subscriptions[event.subscription_id].nack(event.indexes, event.due_ns, event.reason)

    def _expired(self, event: ev.Expired, place: Place) -> None:
        self.subscriptions[event.subscription_id].settle(ev.pairs(event.runs), "expired")

    # Dead letters.

    def _dead_lettered(self, event: ev.DeadLettered, place: Place) -> None:
        subscription = self.subscriptions[event.subscription_id]
        source = subscription.queue
        letters = self.queues_by_id[event.dead_letter_queue_id]
        letters.append_letter(
            Letter(event.subscription_id, event.index),
            at_ns=event.at_ns,
            locator=place.locator,
            length=place.length,
            source=source,
        )
        subscription.bury(event.index)

    def _replayed(self, event: ev.Replayed, place: Place) -> None:
        letters = self.queues_by_id[event.dead_letter_queue_id]
        for index in event.letter_indexes:
            letter = letters.letter(index)
            subscription = self.subscriptions.get(letter.subscription_id)
            if subscription is not None and subscription.revive(letter.index):
                subscription.queue.outlive(letter.index, event.at_ns)
        self._settle_letters(letters, event.letter_indexes, "replayed")

    def _discarded(self, event: ev.Discarded, place: Place) -> None:
        letters = self.queues_by_id[event.dead_letter_queue_id]
        self._settle_letters(letters, event.letter_indexes, "discarded")

    def _settle_letters(self, letters: Queue, indexes: list[int], way: str) -> None:
        reader = letters.subscriptions[DEFAULT_SUBSCRIPTION]
        reader.settle([(index, index + 1) for index in indexes], way)

    def _released(self, event: ev.Released, place: Place) -> None:
        subscription = self.subscriptions[event.subscription_id]
        for index in event.indexes:
            subscription.open(index, index + 1)

    def _trimmed(self, event: ev.Trimmed, place: Place) -> None:
        self.queues_by_id[event.queue_id].trim(event.first)

    def _lost(self, event: ev.Lost, place: Place) -> None:
        queue = self.queues_by_id[event.queue_id]
        stop = event.first + event.count
        if event.first >= queue.next:
            queue.append_lost(event.first, stop, event.at_ns, place.locator, place.length)
        else:
            queue.lose(event.first, stop)

    def _epochs_skipped(self, event: ev.EpochsSkipped, place: Place) -> None:
        for subscription in self.subscriptions.values():
            subscription.epoch += _FORGOTTEN_EPOCHS


def _family(queue: Queue) -> Iterator[Queue]:
    """A queue with its dead-letter queue and its events queue."""
    yield queue
    for own in (queue.dead_letters, queue.events):
        if own is not None:
            yield from _family(own)


_APPLY: dict[type, Any] = {
    ev.QueueCreated: Machine._queue_created,
    ev.QueueAltered: Machine._queue_altered,
    ev.QueueDeleted: Machine._queue_deleted,
    ev.QueuePurged: Machine._queue_purged,
    ev.SubscriptionCreated: Machine._subscription_created,
    ev.SubscriptionAltered: Machine._subscription_altered,
    ev.SubscriptionDeleted: Machine._subscription_deleted,
    ev.Sought: Machine._sought,
    ev.Published: Machine._published,
    ev.Delivered: Machine._delivered,
    ev.Polled: Machine._polled,
    ev.Extended: Machine._extended,
    ev.LeaseExpired: Machine._lease_expired,
    ev.Returned: Machine._returned,
    ev.Acked: Machine._acked,
    ev.Nacked: Machine._nacked,
    ev.Expired: Machine._expired,
    ev.DeadLettered: Machine._dead_lettered,
    ev.Replayed: Machine._replayed,
    ev.Discarded: Machine._discarded,
    ev.Released: Machine._released,
    ev.Trimmed: Machine._trimmed,
    ev.Lost: Machine._lost,
    ev.EpochsSkipped: Machine._epochs_skipped,
}

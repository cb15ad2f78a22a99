"""The model said once more, with plain sets and no thought of speed.

It follows the events of a machine, checks that each was allowed, and can say at any moment where
every message must be. A message that the machine loses, gives twice or gives too early is an
`AssertionError` here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.core import events as ev
from penstock.core.config import DEFAULT_SUBSCRIPTION, QueueConfig, SubscriptionConfig
from penstock.core.message import Envelope
from tests.unit.core.naive_subscription import NaiveLease, NaiveSubscription
from tests.unit.core.sent import Sent, indexes_in

__all__ = ["NaiveQueue", "Poll"]


@dataclass(frozen=True, kw_only=True)
class Poll:
    """A poll by index range that is under way; `cursor` is where the last one ended."""

    cursor: int
    start: int
    count: int

    def range(self, reader: NaiveSubscription, now_ns: int) -> tuple[int, int]:
        begin = max(self.cursor, self.start)
        cap = reader.floor + reader.config.max_in_flight
        end = min(cap, self.start + self.count, reader.queue.next)
        may_go = {*reader.ready(now_ns), *reader.given}
        waiting = [i for i in reader.unsettled if begin <= i < end and i not in may_go]
        return begin, min([end, *waiting])


class NaiveQueue:
    """One queue, from its events."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.sent: list[Sent] = []
        self.subscriptions: dict[str, NaiveSubscription] = {}
        self.letters: dict[int, tuple[int, int]] = {}  # letter -> subscription id, index
        self.asked: int | None = None  # the index that somebody asks for again
        self.polling: Poll | None = None
        self.outliving: set[int] = set()  # replayed after their time

    @property
    def next(self) -> int:
        return len(self.sent)

    def group_of(self, index: int) -> str | None:
        return self.sent[index].envelope.group_key if self.config.fifo else None

    def by_id(self, id: int) -> NaiveSubscription | None:
        return next((s for s in self.subscriptions.values() if s.id == id), None)

    def has_expired(self, index: int, now_ns: int) -> bool:
        if index in self.outliving:
            return False
        sent = self.sent[index]
        own_ns = sent.envelope.expires_at_ns
        ttl = self.config.message_ttl_seconds
        by_ttl = ttl is not None and sent.created_ns + ttl * 1e9 <= now_ns
        return by_ttl or (own_ns is not None and own_ns <= now_ns)

    def follow(self, event: ev.Event) -> None:
        """Take an event in, checking that it was allowed."""
        _FOLLOW[type(event)](self, event)
        for subscription in self.subscriptions.values():
            subscription.grant()

    def _reader_of(self, event: Any) -> NaiveSubscription:
        found = self.by_id(event.subscription_id)
        assert found is not None, "something happened on a subscription that is gone"
        return found

    # Definitions.

    def _created(self, event: ev.QueueCreated) -> None:
        assert event.default is not None
        self._subscribe(event.queue_id + 1, DEFAULT_SUBSCRIPTION, event.default, 0)

    def _altered(self, event: ev.QueueAltered) -> None:
        self.config = event.config

    def _purged(self, event: ev.QueuePurged) -> None:
        for subscription in self.subscriptions.values():
            subscription.settle(list(subscription.unsettled))

    def _trimmed(self, event: ev.Trimmed) -> None:
        """Nothing: a message lives here as long as it is unsettled."""

    def _subscription_created(self, event: ev.SubscriptionCreated) -> None:
        self._subscribe(event.subscription_id, event.name, event.config, event.start)

    def _subscribe(self, id: int, name: str, config: SubscriptionConfig, start: int) -> None:
        self.subscriptions[name] = NaiveSubscription(
            id=id, name=name, config=config, queue=self, start=start
        )

    def _subscription_altered(self, event: ev.SubscriptionAltered) -> None:
        reader = self._reader_of(event)
        is_rewired = event.config.after != reader.config.after
        reader.config = event.config
        if is_rewired:
            reader.rewire()

    def _subscription_deleted(self, event: ev.SubscriptionDeleted) -> None:
        gone = self._reader_of(event)
        del self.subscriptions[gone.name]
        for other in self.subscriptions.values():
            if gone.name in other.config.after:
                after = tuple(name for name in other.config.after if name != gone.name)
                other.config = msgspec.structs.replace(other.config, after=after)
                other.rewire()

    def _sought(self, event: ev.Sought) -> None:
        self._reader_of(event).move(event.index)

    # Messages.

    def _published(self, event: ev.Published) -> None:
        assert event.first == self.next
        for at in range(event.count):
            envelope = event.envelopes[at] if event.envelopes else Envelope()
            sent = Sent(
                index=self.next,
                created_ns=event.at_ns,
                envelope=envelope,
                body=event.bodies[at],
            )
            self.sent.append(sent)
            for subscription in self.subscriptions.values():
                if subscription.wants(sent):
                    subscription.unsettled.add(sent.index)

    def _delivered(self, event: ev.Delivered) -> None:
        reader = self._reader_of(event)
        indexes = indexes_in(event.runs)
        if self.asked is None:
            ready = reader.ready(event.at_ns)
            assert indexes == ready[: len(indexes)], "not the next by priority and index"
        self._lease(reader, indexes, event)

    def _polled(self, event: ev.Polled) -> None:
        reader = self._reader_of(event)
        indexes = indexes_in(event.runs)
        assert self.polling is not None
        begin, end = self.polling.range(reader, event.at_ns)
        room = reader.config.max_in_flight - len(reader.leases)
        ready = [i for i in sorted(reader.ready(event.at_ns)) if begin <= i < end]
        assert indexes == ready[:room]
        assert event.stop == (end if len(ready) <= room else indexes[-1] + 1)
        self._lease(reader, indexes, event)

    def _lease(
        self, reader: NaiveSubscription, indexes: list[int], event: ev.Delivered | ev.Polled
    ) -> None:
        assert not reader.config.paused
        for index in indexes:
            assert index in reader.unsettled, f"{index} was given although it is settled"
            assert index not in reader.leases, f"{index} has two leases"
            assert index not in reader.acked, f"{index} was given after its ack"
            if self.asked is None:
                assert not self.has_expired(index, event.at_ns), f"{index} has expired"
            deliveries = reader.tries.pop(index, 0) + 1
            reader.due_ns.pop(index, None)
            reader.leases[index] = NaiveLease(event.epoch, event.deadline_ns, deliveries)
        if self.asked is None:
            assert len(reader.leases) <= reader.config.max_in_flight

    def _extended(self, event: ev.Extended) -> None:
        leases = self._reader_of(event).leases
        for index in event.indexes:
            leases[index] = leases[index]._replace(deadline_ns=event.deadline_ns)

    def _lease_expired(self, event: ev.LeaseExpired) -> None:
        reader = self._reader_of(event)
        for index in indexes_in(event.runs):
            lease = reader.leases.pop(index)
            is_over = lease.deadline_ns is not None and lease.deadline_ns <= event.at_ns
            assert is_over or self.asked == index
            reader.tries[index] = lease.deliveries

    def _returned(self, event: ev.Returned) -> None:
        reader = self._reader_of(event)
        for index in indexes_in(event.runs):
            lease = reader.leases.pop(index)
            assert not self.has_expired(index, event.at_ns)
            if lease.deliveries > 1:
                reader.tries[index] = lease.deliveries - 1

    def _nacked(self, event: ev.Nacked) -> None:
        reader = self._reader_of(event)
        for index, due_ns in zip(event.indexes, event.due_ns, strict=True):
            reader.tries[index] = reader.leases.pop(index).deliveries
            reader.due_ns[index] = due_ns

    def _acked(self, event: ev.Acked) -> None:
        reader = self._reader_of(event)
        reader.settle(indexes_in(event.runs))
        reader.acked |= set(indexes_in(event.runs))

    def _expired(self, event: ev.Expired) -> None:
        indexes = indexes_in(event.runs)
        if self.config.retain_unsettled:
            assert all(self.has_expired(index, event.at_ns) for index in indexes)
        self._reader_of(event).settle(indexes)

    def _released(self, event: ev.Released) -> None:
        self._reader_of(event).granted |= set(event.indexes)

    # Dead letters.

    def _dead_lettered(self, event: ev.DeadLettered) -> None:
        reader = self._reader_of(event)
        reader.settle([event.index])
        reader.dead.add(event.index)
        self.letters[event.letter_index] = (reader.id, event.index)

    def _replayed(self, event: ev.Replayed) -> None:
        for letter in event.letter_indexes:
            subscription_id, index = self.letters.pop(letter)
            reader = self.by_id(subscription_id)
            assert reader is not None
            if index in reader.dead:
                reader.dead.remove(index)
                reader.unsettled.add(index)
                reader.revived.add(index)
                if self.has_expired(index, event.at_ns):
                    self.outliving.add(index)

    def _discarded(self, event: ev.Discarded) -> None:
        for letter in event.letter_indexes:
            del self.letters[letter]


_FOLLOW: dict[type, Callable[[NaiveQueue, Any], None]] = {
    ev.QueueCreated: NaiveQueue._created,
    ev.QueueAltered: NaiveQueue._altered,
    ev.QueuePurged: NaiveQueue._purged,
    ev.Trimmed: NaiveQueue._trimmed,
    ev.SubscriptionCreated: NaiveQueue._subscription_created,
    ev.SubscriptionAltered: NaiveQueue._subscription_altered,
    ev.SubscriptionDeleted: NaiveQueue._subscription_deleted,
    ev.Sought: NaiveQueue._sought,
    ev.Published: NaiveQueue._published,
    ev.Delivered: NaiveQueue._delivered,
    ev.Polled: NaiveQueue._polled,
    ev.Extended: NaiveQueue._extended,
    ev.LeaseExpired: NaiveQueue._lease_expired,
    ev.Returned: NaiveQueue._returned,
    ev.Nacked: NaiveQueue._nacked,
    ev.Acked: NaiveQueue._acked,
    ev.Expired: NaiveQueue._expired,
    ev.Released: NaiveQueue._released,
    ev.DeadLettered: NaiveQueue._dead_lettered,
    ev.Replayed: NaiveQueue._replayed,
    ev.Discarded: NaiveQueue._discarded,
}

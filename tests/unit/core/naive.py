"""The model said once more, with plain sets and no thought of speed.

It follows the events of a machine, checks that each was allowed, and can say at any moment where
every message must be. A message that the machine loses, gives twice or gives too early is an
`AssertionError` here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from penstock.core import events as ev
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import Envelope
from penstock.core.runs import Run

__all__ = ["FILTERS", "NaiveQueue", "NaiveSubscription", "Sent", "indexes_of"]


class Sent(NamedTuple):
    """A published message."""

    index: int
    created_ns: int
    envelope: Envelope
    body: bytes

    @property
    def due_ns(self) -> int:
        due_ns = self.envelope.not_before_ns or 0
        return due_ns if due_ns > self.created_ns else 0


FILTERS: Mapping[str | None, Callable[[Sent], bool]] = {
    None: lambda sent: True,
    'topic == "red"': lambda sent: sent.envelope.topic == "red",
    "priority > 4": lambda sent: sent.envelope.priority > 4,
    'body == "odd"': lambda sent: sent.body == b'"odd"',
}
"""Some filters, and what they mean."""


def indexes_of(runs: list[int] | list[Run]) -> list[int]:
    """The indexes of runs, in the order in which they are written; flat ones too."""
    pairs = [run for run in runs if isinstance(run, tuple)]
    if not pairs:
        pairs = ev.pairs([bound for bound in runs if isinstance(bound, int)])
    return [index for start, stop in pairs for index in range(start, stop)]


class NaiveLease(NamedTuple):
    epoch: int
    deadline_ns: int | None
    deliveries: int


class NaiveSubscription:
    """A reader. Every unsettled index is in exactly one of the sets that `places` gives."""

    def __init__(
        self, *, id: int, name: str, config: SubscriptionConfig, queue: NaiveQueue, start: int
    ) -> None:
        self.id = id
        self.name = name
        self.config = config
        self.queue = queue
        self.dead: set[int] = set()
        self.acked: set[int] = set()
        self.move(start)

    def move(self, start: int) -> None:
        self.unsettled = {
            sent.index for sent in self.queue.sent if sent.index >= start and self.wants(sent)
        }
        self.dead = {index for index in self.dead if index < start}
        self.acked = {index for index in self.acked if index < start}
        self.revived: set[int] = set()
        self.leases: dict[int, NaiveLease] = {}
        self.tries: dict[int, int] = {}
        self.due_ns: dict[int, int] = {}
        self.granted: set[int] = set()

    def wants(self, sent: Sent) -> bool:
        return FILTERS[self.config.filter](sent)

    @property
    def parents(self) -> list[NaiveSubscription]:
        return [self.queue.subscriptions[name] for name in self.config.after]

    def lets_pass(self, index: int, *, dead_too: bool) -> bool:
        return index not in self.unsettled and (dead_too or index not in self.dead)

    def grant(self) -> None:
        dead_too = self.config.on_dead_parent == "ignore"
        if self.config.after:
            self.granted |= {
                sent.index
                for sent in self.queue.sent
                if all(parent.lets_pass(sent.index, dead_too=dead_too) for parent in self.parents)
            }

    def rewire(self) -> None:
        """What was delivered stays; all else waits for the parents of now."""
        self.granted = self.leases.keys() | self.tries.keys()

    def settle(self, indexes: list[int]) -> None:
        for index in indexes:
            assert index in self.unsettled, f"{index} was settled twice on {self.name}"
            self.unsettled.remove(index)
            for places in (self.leases, self.tries, self.due_ns):
                places.pop(index, None)

    # Where messages must be.

    @property
    def held(self) -> set[int]:
        return self.unsettled - self.granted if self.config.after else set()

    @property
    def lines(self) -> dict[str, list[int]]:
        """The groups: the one that was given out first, the others by index."""
        lines: dict[str, list[int]] = {}
        for index in sorted(self.unsettled - self.held):
            group = self.queue.group_of(index)
            if group is not None:
                lines.setdefault(group, []).append(index)
        for line in lines.values():
            line.sort(key=lambda index: (index not in self.given, index))
        return lines

    @property
    def given(self) -> set[int]:
        return self.leases.keys() | self.tries.keys()

    @property
    def parked(self) -> set[int]:
        return {index for line in self.lines.values() for index in line[1:]}

    @property
    def ready_or_delayed(self) -> set[int]:
        return self.unsettled - self.held - self.parked - self.leases.keys()

    def delayed(self, now_ns: int) -> set[int]:
        return {index for index in self.ready_or_delayed if self.due_of(index) > now_ns}

    def due_of(self, index: int) -> int:
        if index in self.tries:
            return self.due_ns.get(index, 0)
        return self.queue.sent[index].due_ns

    def ready(self, now_ns: int) -> list[int]:
        """In the order in which they must be given."""
        return sorted(
            self.ready_or_delayed - self.delayed(now_ns),
            key=lambda index: (-self.queue.sent[index].envelope.priority, index),
        )

    @property
    def floor(self) -> int:
        return min(self.unsettled, default=self.queue.next)


class NaiveQueue:
    """One queue, from its events."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.sent: list[Sent] = []
        self.subscriptions: dict[str, NaiveSubscription] = {}
        self.letters: dict[int, tuple[int, int]] = {}  # letter -> subscription id, index
        self.asked: int | None = None  # the index that somebody asks for again

    @property
    def next(self) -> int:
        return len(self.sent)

    def group_of(self, index: int) -> str | None:
        return self.sent[index].envelope.group_key if self.config.fifo else None

    def by_id(self, id: int) -> NaiveSubscription | None:
        return next((s for s in self.subscriptions.values() if s.id == id), None)

    def has_expired(self, index: int, now_ns: int) -> bool:
        sent = self.sent[index]
        own_ns = sent.envelope.expires_at_ns
        ttl = self.config.message_ttl_seconds
        by_ttl = ttl is not None and sent.created_ns + ttl * 1e9 <= now_ns
        return by_ttl or (own_ns is not None and own_ns <= now_ns)

    def follow(self, event: ev.Event) -> None:
        """Take an event in, checking that it was allowed."""
        match event:
            case ev.Published():
                self._publish(event)
            case ev.QueueAltered():
                self.config = event.config
            case ev.QueuePurged():
                for subscription in self.subscriptions.values():
                    subscription.settle(list(subscription.unsettled))
            case ev.SubscriptionCreated():
                self.subscriptions[event.name] = NaiveSubscription(
                    id=event.subscription_id,
                    name=event.name,
                    config=event.config,
                    queue=self,
                    start=event.start,
                )
            case ev.SubscriptionDeleted():
                self._delete(event.subscription_id)
            case ev.Replayed():
                for letter in event.letter_indexes:
                    self._replay(*self.letters.pop(letter))
            case ev.Discarded():
                for letter in event.letter_indexes:
                    del self.letters[letter]
            case ev.QueueCreated() | ev.Trimmed():
                pass
            case _:
                subscription = self.by_id(event.subscription_id)
                assert subscription is not None
                self._follow_subscription(subscription, event)
        for subscription in self.subscriptions.values():
            subscription.grant()

    def _publish(self, event: ev.Published) -> None:
        assert event.first == self.next
        for at in range(event.count):
            envelope = event.envelopes[at] if event.envelopes else Envelope()
            sent = Sent(self.next, event.at_ns, envelope, event.bodies[at])
            self.sent.append(sent)
            for subscription in self.subscriptions.values():
                if subscription.wants(sent):
                    subscription.unsettled.add(sent.index)

    def _delete(self, subscription_id: int) -> None:
        gone = self.by_id(subscription_id)
        assert gone is not None
        del self.subscriptions[gone.name]
        for other in self.subscriptions.values():
            if gone.name in other.config.after:
                after = tuple(name for name in other.config.after if name != gone.name)
                other.config = msgspec.structs.replace(other.config, after=after)
                other.rewire()

    def _replay(self, subscription_id: int, index: int) -> None:
        subscription = self.by_id(subscription_id)
        assert subscription is not None
        if index in subscription.dead:
            subscription.dead.remove(index)
            subscription.unsettled.add(index)
            subscription.revived.add(index)

    def _follow_subscription(self, reader: NaiveSubscription, event: ev.Event) -> None:
        match event:
            case ev.SubscriptionAltered():
                is_rewired = event.config.after != reader.config.after
                reader.config = event.config
                if is_rewired:
                    reader.rewire()
            case ev.Sought():
                reader.move(event.index)
            case ev.Delivered() | ev.Polled():
                self._deliver(reader, event)
            case ev.Extended():
                for index in event.indexes:
                    lease = reader.leases[index]
                    reader.leases[index] = lease._replace(deadline_ns=event.deadline_ns)
            case ev.LeaseExpired():
                for index in indexes_of(event.runs):
                    lease = reader.leases.pop(index)
                    is_over = lease.deadline_ns is not None and lease.deadline_ns <= event.at_ns
                    assert is_over or self.asked == index
                    reader.tries[index] = lease.deliveries
            case ev.Nacked():
                for index, due_ns in zip(event.indexes, event.due_ns, strict=True):
                    reader.tries[index] = reader.leases.pop(index).deliveries
                    reader.due_ns[index] = due_ns
            case ev.Acked():
                reader.settle(indexes_of(event.runs))
                reader.acked |= set(indexes_of(event.runs))
            case ev.Expired():
                reader.settle(indexes_of(event.runs))
            case ev.DeadLettered():
                reader.settle([event.index])
                reader.dead.add(event.index)
                self.letters[event.letter_index] = (reader.id, event.index)
            case ev.Released():
                reader.granted |= set(event.indexes)

    def _deliver(self, reader: NaiveSubscription, event: ev.Delivered | ev.Polled) -> None:
        assert not reader.config.paused
        indexes = indexes_of(event.runs)
        ready = reader.ready(event.at_ns)
        if isinstance(event, ev.Polled):
            assert indexes == sorted(indexes)
            assert set(indexes) <= set(ready)
        elif self.asked is None:
            assert indexes == ready[: len(indexes)], "not the next by priority and index"
        for index in indexes:
            assert index in reader.unsettled, f"{index} was given although it is settled"
            assert index not in reader.leases, f"{index} has two leases"
            assert index not in reader.acked, f"{index} was given after its ack"
            if self.asked is None and index not in reader.revived:
                assert not self.has_expired(index, event.at_ns), f"{index} has expired"
            deliveries = reader.tries.pop(index, 0) + 1
            reader.due_ns.pop(index, None)
            reader.leases[index] = NaiveLease(event.epoch, event.deadline_ns, deliveries)
        if self.asked is None:
            assert len(reader.leases) <= reader.config.max_in_flight


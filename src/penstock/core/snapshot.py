"""The whole state of a machine as plain values, and back.

Timelines are left out: they grow with the backlog, and the storage has them in files of their own.
The size of a snapshot depends on the number of queues, subscriptions and exceptions.

The fields are part of the checkpoint format: add new ones with a default, and never change one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sized
from copy import copy

import msgspec

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.counters import Counters
from penstock.core.deadlines import Deadlines
from penstock.core.feed import Feed
from penstock.core.feeds import Special
from penstock.core.groups import Groups
from penstock.core.lease import Attempts, Lease, Leases
from penstock.core.lifecycle import LifecycleRun
from penstock.core.machine import Machine
from penstock.core.queue import Queue
from penstock.core.recent_keys import KeysDump, RecentKeys
from penstock.core.request_keys import PastRequest, RequestKeys
from penstock.core.runs import Runs
from penstock.core.schedule import Schedule
from penstock.core.subscription import Subscription

__all__ = ["MachineSnapshot", "restore", "take_snapshot"]

RunsDump = tuple[bytes, bytes]


class FeedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    filter: str | None
    since: int
    matched: RunsDump
    lanes: dict[int, RunsDump] | None  # None: a single lane, with everything that matched
    special: bytes
    total: int
    errors: int


class SubscriptionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    config: SubscriptionConfig
    created_ns: int
    start: int
    cursors: dict[int, int]
    polled: int
    pulled: int
    opened: RunsDump
    ready: dict[int, RunsDump]
    waiting: dict[int, int]
    groups: dict[str, list[int]]
    leases: dict[int, Lease]
    attempts: dict[int, Attempts]
    settled: RunsDump
    settled_total: int
    base_total: int
    dead: RunsDump
    epoch: int
    counters: Counters
    last_delivery_ns: int | None
    last_ack_ns: int | None
    secrets: tuple[str, ...] = ()

    @property
    def entries(self) -> int:
        """As that of a queue."""
        many: list[Sized] = [self.waiting, self.groups, self.leases, self.attempts]
        return sum(map(len, many))


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    config: QueueConfig
    salt: int
    created_ns: int
    first: int
    next: int
    dead_letters_of: int | None
    everything: FeedSnapshot
    feeds: list[FeedSnapshot]
    subscriptions: list[SubscriptionSnapshot]
    special: dict[int, Special]
    expiry: dict[int, int]
    duplicates: int
    purged: int
    stragglers: list[int]
    pins: dict[int, int]
    letter_subscriptions: bytes
    letter_origins: bytes
    dedup_keys: KeysDump | None = None
    request_keys: KeysDump | None = None
    other_requests: dict[str, PastRequest] = {}
    events_of: int | None = None
    # What version 2 had instead of keys: the index and the time, or the time and the answer.
    dedup: dict[str, tuple[int, int]] = {}
    requests: dict[str, tuple[int, PastRequest]] = {}

    @property
    def entries(self) -> int:
        """How many there are of what there may be very many of."""
        keys = [dump.keys for dump in (self.dedup_keys, self.request_keys) if dump is not None]
        many: list[Sized] = [
            self.special,
            self.expiry,
            self.pins,
            self.stragglers,
            self.other_requests,
            *keys,
        ]
        return sum(map(len, many)) + sum(s.entries for s in self.subscriptions)


class MachineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    last_id: int
    now_ns: int
    queues: list[QueueSnapshot]
    untold: dict[int, list[LifecycleRun]] = {}


def take_snapshot(machine: Machine) -> MachineSnapshot:
    """It shares nothing that changes with the machine, so a thread may encode it."""
    return MachineSnapshot(
        last_id=machine.last_id,
        now_ns=machine.now_ns,
        # By id, so that a queue comes before its dead letters and events.
        queues=[_queue(queue) for _, queue in sorted(machine.queues_by_id.items())],
        untold={queue_id: list(runs) for queue_id, runs in machine.untold.items()},
    )


def _queue(queue: Queue) -> QueueSnapshot:
    return QueueSnapshot(
        id=queue.id,
        name=queue.name,
        config=queue.config,
        salt=queue.salt,
        created_ns=queue.created_ns,
        first=queue.first,
        next=queue.next,
        dead_letters_of=queue.source.id if queue.source else None,
        everything=_feed(queue.feeds.everything),
        feeds=[_feed(feed) for feed in queue.feeds.by_filter.values()],
        subscriptions=[_subscription(s) for s in queue.subscriptions.values()],
        special=dict(queue.feeds.special),
        expiry=dict(queue.expiry.times),
        dedup_keys=queue.dedup.dump(),
        duplicates=queue.duplicates,
        purged=queue.purged,
        stragglers=list(queue.stragglers),
        pins=dict(queue.pins),
        letter_subscriptions=queue.letter_subscriptions.tobytes(),
        letter_origins=queue.letter_origins.tobytes(),
        request_keys=queue.requests.recent.dump(),
        other_requests=dict(queue.requests.others),
        events_of=queue.events_of.id if queue.events_of else None,
    )


def _feed(feed: Feed) -> FeedSnapshot:
    is_plain = feed.lanes[0] is feed.matched and len(feed.lanes) == 1
    return FeedSnapshot(
        id=feed.id,
        filter=feed.filter.source if feed.filter else None,
        since=feed.since,
        matched=feed.matched.dump(),
        lanes=None if is_plain else {p: lane.dump() for p, lane in feed.lanes.items()},
        special=feed.special.tobytes(),
        total=feed.total,
        errors=feed.errors,
    )


def _subscription(subscription: Subscription) -> SubscriptionSnapshot:
    return SubscriptionSnapshot(
        id=subscription.id,
        name=subscription.name,
        config=subscription.config,
        created_ns=subscription.created_ns,
        start=subscription.start,
        cursors=dict(subscription.cursors),
        polled=subscription.polled,
        pulled=subscription.pulled,
        opened=subscription.opened.dump(),
        ready={p: lane.dump() for p, lane in subscription.ready.items() if lane},
        waiting=dict(subscription.waiting.times),
        groups={key: list(line) for key, line in subscription.groups.lines.items()},
        leases=subscription.leases.by_index(),
        attempts=dict(subscription.attempts),
        settled=subscription.settled.dump(),
        settled_total=subscription.settled_total,
        base_total=subscription.base_total,
        dead=subscription.dead.dump(),
        epoch=subscription.epoch,
        counters=copy(subscription.counters),
        last_delivery_ns=subscription.last_delivery_ns,
        last_ack_ns=subscription.last_ack_ns,
        secrets=subscription.secrets,
    )


def restore(machine: Machine, snapshot: MachineSnapshot) -> dict[int, list[int]]:
    """Fill a new machine. Returns each queue's stragglers, to be looked up in the timelines."""
    machine.last_id = snapshot.last_id
    machine.now_ns = snapshot.now_ns
    machine.untold = snapshot.untold
    for shot in snapshot.queues:
        _restore_queue(machine, shot)
    machine.observe()
    return {shot.id: shot.stragglers for shot in snapshot.queues}


def _restore_queue(machine: Machine, shot: QueueSnapshot) -> None:
    queue = Queue(
        id=shot.id, name=shot.name, config=shot.config, salt=shot.salt, created_ns=shot.created_ns
    )
    machine.add_queue(queue, shot.dead_letters_of, shot.events_of)
    queue.first = shot.first
    queue.next = shot.next
    _restore_feed(queue.feeds.everything, shot.everything)
    for feed_shot in shot.feeds:
        feed = queue.feed_for(feed_shot.filter, feed_shot.id)
        feed.since = feed_shot.since
        _restore_feed(feed, feed_shot)
    queue.feeds.special = shot.special
    queue.expiry = Schedule(shot.expiry)
    _restore_keys(queue, shot)
    queue.duplicates = shot.duplicates
    queue.purged = shot.purged
    queue.pins = shot.pins
    queue.letter_subscriptions = array("I", shot.letter_subscriptions)
    queue.letter_origins = array("Q", shot.letter_origins)
    for subscription_shot in shot.subscriptions:
        subscription = _restore_subscription(queue, subscription_shot)
        queue.subscriptions[subscription.name] = subscription
        machine.subscriptions[subscription.id] = subscription
    # Not `Queue.link`: it would open again what the snapshot already has as open.
    queue.connect()


def _restore_keys(queue: Queue, shot: QueueSnapshot) -> None:
    if shot.dedup_keys is not None and shot.request_keys is not None:
        queue.dedup = RecentKeys.load(shot.dedup_keys)
        queue.requests = RequestKeys(RecentKeys.load(shot.request_keys), shot.other_requests)
        return
    for key, (index, at_ns) in sorted(shot.dedup.items(), key=lambda item: item[1][1]):
        queue.dedup.note(key, at_ns, index, index + 1)
    for key, (at_ns, request) in sorted(shot.requests.items(), key=lambda item: item[1][0]):
        queue.requests.note(key, at_ns, request)


def _restore_feed(feed: Feed, shot: FeedSnapshot) -> None:
    feed.matched = Runs.load(shot.matched)
    feed.lanes = (
        {0: feed.matched}
        if shot.lanes is None
        else {priority: Runs.load(dump) for priority, dump in shot.lanes.items()}
    )
    feed.special = array("Q", shot.special)
    feed.total = shot.total
    feed.errors = shot.errors


def _restore_subscription(queue: Queue, shot: SubscriptionSnapshot) -> Subscription:
    subscription = Subscription(
        id=shot.id,
        name=shot.name,
        config=shot.config,
        queue=queue,
        feed=queue.feed_for(shot.config.filter, shot.id),
        start=shot.start,
        created_ns=shot.created_ns,
    )
    subscription.cursors = shot.cursors
    subscription.polled = shot.polled
    subscription.pulled = shot.pulled
    subscription.opened = Runs.load(shot.opened)
    subscription.ready = {p: Runs.load(dump) for p, dump in shot.ready.items()}
    subscription.waiting = Schedule(shot.waiting)
    subscription.groups = Groups(shot.groups)
    subscription.leases = Leases(shot.leases)
    subscription.deadlines = Deadlines(subscription.leases)
    subscription.attempts = shot.attempts
    subscription.settled = Runs.load(shot.settled)
    subscription.settled_total = shot.settled_total
    subscription.base_total = shot.base_total
    subscription.dead = Runs.load(shot.dead)
    subscription.epoch = shot.epoch
    subscription.counters = shot.counters
    subscription.last_delivery_ns = shot.last_delivery_ns
    subscription.last_ack_ns = shot.last_ack_ns
    subscription.secrets = shot.secrets
    return subscription

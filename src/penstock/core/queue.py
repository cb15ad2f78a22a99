"""A queue: a named, ordered, append-only log of messages, with its subscriptions."""

from __future__ import annotations

from array import array
from bisect import insort
from operator import attrgetter

import msgspec

from penstock.core.config import DEFAULT_SUBSCRIPTION, QueueConfig
from penstock.core.events import Published
from penstock.core.feed import Feed
from penstock.core.feeds import Feeds
from penstock.core.limits import NANOSECONDS
from penstock.core.message import message_id, parse_message_id
from penstock.core.recent_keys import RecentKeys
from penstock.core.request_keys import RequestKeys
from penstock.core.runs import Run, Runs, runs_of
from penstock.core.schedule import Schedule
from penstock.core.subscription import Subscription
from penstock.core.timeline import Batch, Timeline
from penstock.errors import SubscriptionNotFound

__all__ = ["NEVER_NS", "Letter", "Queue"]

_id = attrgetter("id")

NEVER_NS = 2**63 - 1
"""The expiry of a message that no longer expires."""


class Letter(msgspec.Struct, frozen=True):
    """Where a dead letter came from."""

    subscription_id: int
    index: int


class Queue:
    """The messages ``first <= index < next``, plus `stragglers`: older ones still needed."""

    __slots__ = (
        "aging",
        "config",
        "created_ns",
        "dead_letters",
        "dedup",
        "dependents",
        "duplicates",
        "events",
        "events_of",
        "expiry",
        "feeds",
        "first",
        "id",
        "letter_origins",
        "letter_subscriptions",
        "name",
        "next",
        "pins",
        "purged",
        "requests",
        "salt",
        "source",
        "stragglers",
        "subscriptions",
        "timeline",
        "ttl_checked",
    )

    def __init__(
        self, *, id: int, name: str, config: QueueConfig, salt: int, created_ns: int
    ) -> None:
        self.id = id
        self.name = name
        self.config = config
        self.salt = salt
        self.created_ns = created_ns
        self.first = 0
        self.next = 0
        self.timeline = Timeline()
        self.subscriptions: dict[str, Subscription] = {}
        self.dependents: list[Subscription] = []  # those that wait for others
        self.feeds = Feeds()
        self.expiry = Schedule()  # of messages that have one of their own
        self.ttl_checked = 0  # the queue's time to live was applied to all messages below it
        # When that ends for stragglers, which may lie below; None until somebody asks.
        self.aging: Schedule | None = None
        self.dedup = RecentKeys()  # of single messages
        self.requests = RequestKeys()
        self.duplicates = 0
        self.purged = 0
        self.stragglers: dict[int, Batch] = {}
        self.pins: dict[int, int] = {}  # index -> how many dead letters refer to it
        self.dead_letters: Queue | None = None
        self.events: Queue | None = None  # where its lifecycle events are published
        self.events_of: Queue | None = None  # set on such a queue: the queue it observes
        # For a dead-letter queue: the queue its letters come from, and columns beside the timeline.
        self.source: Queue | None = None
        self.letter_subscriptions = array("I")
        self.letter_origins = array("Q")

    # Reading the state.

    def subscription(self, name: str) -> Subscription:
        """Raises `SubscriptionNotFound`."""
        found = self.subscriptions.get(name)
        if found is None:
            raise SubscriptionNotFound(
                f"queue {self.name!r} has no subscription {name!r}; "
                f"it has: {', '.join(sorted(self.subscriptions)) or 'none'}"
            )
        return found

    def holds(self, index: int) -> bool:
        return self.first <= index < self.next or index in self.stragglers

    def batch(self, index: int) -> Batch:
        """Where the storage keeps a message that the queue holds."""
        if index >= self.first:
            return self.timeline.batch(index)
        return self.stragglers[index]

    def mean_bytes(self, index: int) -> tuple[int, int]:
        """Roughly how large a message is, and the index up to which the same figure holds."""
        if self.source is not None:
            # A letter is as large as the message that failed.
            return self.source.mean_bytes(self.letter(index).index)[0], index + 1
        if index < self.first:
            aside = self.stragglers.get(index)
            return (aside.length if aside else 0), index + 1
        return self.timeline.mean_bytes(index, self.next)

    def id_of(self, index: int) -> str:
        return message_id(self.batch(index).created_ns, index, self.salt)

    def index_of(self, id: str) -> int | None:
        """The index of the message with this id; None if the queue does not hold it."""
        parsed = parse_message_id(id)
        if parsed is None or parsed.salt != self.salt or not self.holds(parsed.index):
            return None
        if self.batch(parsed.index).created_ns // 1_000_000 != parsed.created_ms:
            return None
        return parsed.index

    def letter(self, index: int) -> Letter:
        """For a dead-letter queue: where the letter at this index came from."""
        at = index - (self.next - len(self.letter_origins))
        return Letter(self.letter_subscriptions[at], self.letter_origins[at])

    def expires_ns(self, index: int) -> int | None:
        """When a message expires: at its own time or the queue's, whichever comes first."""
        own = self.expiry.times.get(index)
        if own == NEVER_NS:
            return None
        ttl = self.config.message_ttl_seconds
        if ttl is None:
            return own
        created_ns = self.timeline.created_ns(index)
        if created_ns is None:
            if index not in self.stragglers:
                return own
            created_ns = self.stragglers[index].created_ns
        by_ttl = created_ns + round(ttl * NANOSECONDS)
        return by_ttl if own is None else min(own, by_ttl)

    # Changing the state.

    def append(self, event: Published, locator: int, length: int) -> None:
        first, stop = event.first, event.first + event.count
        self.timeline.append(first, event.at_ns, event.size, locator, length)
        self.next = stop
        self.feeds.add(event, fifo=self.config.fifo)
        for index, envelope in enumerate(event.envelopes or (), first):
            if envelope.expires_at_ns is not None:
                self.expiry.add(index, envelope.expires_at_ns)
            if envelope.dedup_key is not None:
                self.dedup.note(envelope.dedup_key, event.at_ns, index, index + 1)
        for key, request in event.keys.items():
            self.requests.note(key, event.at_ns, request)
        for subscription in self.dependents:
            # At publish, a parent has passed what its filter keeps out; without a filter, nothing.
            if all(parent.feed.filter is not None for parent in subscription.parents):
                subscription.parents_passed(first, stop)

    def forget_dedup_keys(self, now_ns: int) -> None:
        """Drop the keys whose dedup window is over."""
        before = self.dedup_since_ns(now_ns)
        self.requests.forget(before)
        self.dedup.forget(before)

    def dedup_since_ns(self, now_ns: int) -> int:
        """Keys from this time or earlier no longer count."""
        return now_ns - round(self.config.dedup_window_seconds * NANOSECONDS)

    def feed_for(self, filter_text: str | None, feed_id: int) -> Feed:
        """The shared feed of a filter, created if need be."""
        return self.feeds.open(filter_text, feed_id, since=self.next)

    def backfill(self, feed: Feed, since: int, matches: list[Run]) -> None:
        if since < feed.since:
            before = feed.total
            feed.backfill(since, matches, self.feeds.everything)
            for subscription in self.subscriptions.values():
                if subscription.feed is feed:
                    # All of it precedes where this subscription started.
                    subscription.base_total += feed.total - before

    def drop_feed(self, feed: Feed) -> None:
        """Forget a feed unless a subscription still reads it."""
        if not any(subscription.feed is feed for subscription in self.subscriptions.values()):
            self.feeds.drop(feed)

    def link(self, subscription: Subscription) -> None:
        """Set the parents of a subscription according to its `after`, and make it their child."""
        parents = self._parents(subscription)
        if parents != subscription.parents:
            self._leave_parents(subscription)
            subscription.rewire(parents)
            self._join_parents(subscription)

    def connect(self) -> None:
        """Link all that a snapshot has: what their messages wait for is in it already."""
        for subscription in self.subscriptions.values():
            subscription.parents = self._parents(subscription)
            self._join_parents(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription. Its children wait for their other parents alone."""
        del self.subscriptions[subscription.name]
        self._leave_parents(subscription)
        for child in list(subscription.children):
            after = tuple(name for name in child.config.after if name != subscription.name)
            child.config = msgspec.structs.replace(child.config, after=after)
            self.link(child)

    def _parents(self, subscription: Subscription) -> list[Subscription]:
        return [self.subscriptions[name] for name in subscription.config.after]

    def _join_parents(self, subscription: Subscription) -> None:
        # In the order of their creation, whenever they joined: as a snapshot would have them.
        if subscription.parents:
            insort(self.dependents, subscription, key=_id)
        for parent in subscription.parents:
            insort(parent.children, subscription, key=_id)

    def _leave_parents(self, subscription: Subscription) -> None:
        if subscription.parents:
            self.dependents.remove(subscription)
        for parent in subscription.parents:
            parent.children.remove(subscription)

    def append_letter(
        self, letter: Letter, *, at_ns: int, locator: int, length: int, source: Queue
    ) -> None:
        self.timeline.append(self.next, at_ns, 0, locator, length)
        self.letter_subscriptions.append(letter.subscription_id)
        self.letter_origins.append(letter.index)
        source.pins[letter.index] = source.pins.get(letter.index, 0) + 1
        self.next += 1
        self.feeds.everything.add(self.next - 1, self.next)

    def letters_settled(self, runs: list[Run]) -> None:
        """For a dead-letter queue: unpin the messages that these letters refer to."""
        source = self.source
        if source is None:
            return
        for start, stop in runs:
            for index in range(start, stop):
                origin = self.letter(index).index
                source.pins[origin] -= 1
                if not source.pins[origin]:
                    del source.pins[origin]
                    source.settled_somewhere(origin, origin + 1)

    def is_needed(self, index: int) -> bool:
        return index in self.pins or any(
            not s.is_settled(index) for s in self.subscriptions.values()
        )

    def settled_somewhere(self, start: int, stop: int) -> None:
        """Drop stragglers that nobody needs any more."""
        if start < self.first and self.stragglers:
            for index in range(start, min(stop, self.first)):
                if index in self.stragglers and not self.is_needed(index):
                    self._drop_straggler(index)

    def drop_stragglers(self) -> None:
        """Check all stragglers again, after a subscription was deleted or moved."""
        for index in [i for i in self.stragglers if not self.is_needed(i)]:
            self._drop_straggler(index)

    def _drop_straggler(self, index: int) -> None:
        del self.stragglers[index]
        self._forget_message(index)
        self._forget_dead(index, index + 1)

    def _forget_message(self, index: int) -> None:
        self.feeds.special.pop(index, None)
        self.expiry.times.pop(index, None)
        if self.aging is not None:
            self.aging.times.pop(index, None)

    def _forget_dead(self, start: int, stop: int) -> None:
        """Forget who gave up messages that are gone: that would only grow."""
        for subscription in self.subscriptions.values():
            for run in list(subscription.dead.within(start, stop)):
                for index in range(*run):
                    if index not in self.stragglers:
                        subscription.dead.discard(index, index + 1)

    def trim(self, first: int) -> None:
        """Remove messages from the front, but keep aside those that are still needed."""
        for subscription in self.subscriptions.values():
            for run in subscription.unsettled_within(self.first, first):
                for index in range(*run):
                    self._keep_aside(index)
        for index in self.pins:
            if self.first <= index < first:
                self._keep_aside(index)
        for places in (self.feeds.special, self.expiry.times):
            if places:
                for index in [i for i in places if i < first and i not in self.stragglers]:
                    self._forget_message(index)
        old_first, self.first = self.first, first
        self._forget_dead(old_first, first)
        self.timeline.trim(first, self.next)
        # Feeds must still cover the stragglers, so they are cut below the lowest of them.
        lowest = min(self.stragglers, default=first)
        for feed in self.feeds:
            feed.trim(lowest)
        if self.source is not None:
            del self.letter_subscriptions[: first - old_first]
            del self.letter_origins[: first - old_first]

    def _keep_aside(self, index: int) -> None:
        if index not in self.stragglers:
            self.stragglers[index] = batch = self.timeline.batch(index)
            if self.aging is not None:
                self._age(self.aging, index, batch.created_ns)

    def _age(self, aging: Schedule, index: int, created_ns: int) -> None:
        ttl = self.config.message_ttl_seconds
        if ttl is not None:
            aging.add(index, created_ns + round(ttl * NANOSECONDS))

    def aged(self, now_ns: int) -> list[Run]:
        """Stragglers whose time to live by the queue is over now, and was not before."""
        if self.aging is None:
            self.aging = Schedule()
            for index, batch in self.stragglers.items():
                self._age(self.aging, index, batch.created_ns)
        expiry = self.expiry.times
        return runs_of(i for i in self.aging.pop_due(now_ns) if expiry.get(i) != NEVER_NS)

    def change_ttl(self) -> None:
        """Look at all ages again: what had no time left, in flight or dead, may have some now."""
        self.ttl_checked = 0
        self.aging = None

    def outlive(self, index: int, now_ns: int) -> None:
        """Stop a message from expiring because it was replayed after its time."""
        expires_ns = self.expires_ns(index)
        if expires_ns is not None and expires_ns <= now_ns:
            self.expiry.times[index] = NEVER_NS

    def too_old(self, start: int, stop: int) -> list[Run]:
        """Of messages older than the queue's time to live, those that do expire."""
        expiry = self.expiry.times
        # Walk the shorter one: after a restart the range may be the whole queue.
        suspects = range(start, stop) if stop - start < len(expiry) else expiry
        kept = runs_of(index for index in suspects if expiry.get(index) == NEVER_NS)
        return list(Runs(kept).outside(start, stop))

    def look_again(self, start: int) -> None:
        """Check for expiry from here on again, because a subscription will read from here."""
        self.ttl_checked = min(self.ttl_checked, start)
        self.expiry.rewind()

    def append_lost(
        self, first: int, stop: int, created_ns: int, locator: int, length: int
    ) -> None:
        """Add indexes whose messages cannot be read. They match no feed, so are never delivered."""
        self.timeline.append(first, created_ns, 0, locator, length)
        self.next = stop
        if self.source is not None:
            self.letter_subscriptions.extend([0] * (stop - first))
            self.letter_origins.extend([0] * (stop - first))

    def lose(self, first: int, stop: int) -> None:
        """Expire messages that cannot be read any more, and their dead letters."""
        for subscription in self.subscriptions.values():
            subscription.settle(list(subscription.unsettled_within(first, stop)), "expired")
        letters = self.dead_letters
        if letters is not None and letters.default is not None:
            reader = letters.default
            gone = [
                (index, index + 1)
                for run in list(reader.unsettled_within(letters.first, letters.next))
                for index in range(*run)
                if first <= letters.letter(index).index < stop
            ]
            reader.settle(gone, "expired")
        # A seek must not bring them back, nor may a dedup key refer to one of them.
        for feed in self.feeds:
            feed.lose(first, stop)
        for key in self.dedup.within(first, stop):
            self.dedup.drop(key)
        self.requests.lose(first, stop)
        for places in (self.feeds.special, self.expiry.times, self.stragglers):
            for index in [index for index in places if first <= index < stop]:
                del places[index]
        self.aging = None

    @property
    def messages(self) -> int:
        """How many it holds."""
        return self.next - self.first + len(self.stragglers)

    def purge(self) -> None:
        """Settle and remove everything, except what dead letters refer to."""
        before = self.messages
        for subscription in self.subscriptions.values():
            runs = list(subscription.unsettled_within(0, self.next))
            subscription.settle(runs, "purged")
        self.trim(self.next)
        self.purged += before - self.messages

    def vanish(self) -> None:
        """Empty a deleted queue, so that those who are still reading it find nothing."""
        self.first = self.next
        self.stragglers.clear()
        self.aging = None
        self.timeline.trim(self.next, self.next)

    @property
    def default(self) -> Subscription | None:
        return self.subscriptions.get(DEFAULT_SUBSCRIPTION)

"""Statistics of a queue and its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from penstock.core.callback import CallbackState
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.limits import NANOSECONDS
from penstock.core.message import to_datetime
from penstock.errors import StoreUnavailable

if TYPE_CHECKING:
    # A client needs the types of the answers, but must not import CEL, as a queue does.
    from penstock.core.queue import Queue
    from penstock.core.subscription import Subscription

__all__ = [
    "DefinedSubscription",
    "EnsuredQueue",
    "EnsuredSubscription",
    "KnownStats",
    "QueueStats",
    "SubscriptionStats",
    "queue_stats",
    "subscription_stats",
]


class SubscriptionStats(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a subscription, and its counters since it was created.

    `ready + in_flight + delayed + parked + held` is everything unsettled. `delayed` waits for a
    time, `parked` for an earlier message of its group, `held` for other subscriptions. `callback`
    is set if a server makes calls for it.
    """

    name: str
    config: SubscriptionConfig
    created_at: datetime
    ready: int
    in_flight: int
    delayed: int
    parked: int
    held: int
    acked: int
    filtered: int
    dead_lettered: int
    expired: int
    skipped: int
    purged: int
    delivered: int
    redelivered: int
    nacked: int
    leases_expired: int
    replayed: int
    discarded: int
    returned: int
    filter_errors: int
    cursor: int
    lowest_unacked_index: int
    oldest_unacked_seconds: float | None
    last_delivery_at: datetime | None
    last_ack_at: datetime | None
    callback: CallbackState | None = None


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue. `dead_letters` counts those that are neither replayed nor discarded."""

    name: str
    config: QueueConfig
    created_at: datetime
    first_index: int
    next_index: int
    messages: int
    bytes: int
    dead_letters: int
    duplicates: int
    purged: int
    subscriptions: list[SubscriptionStats]


class EnsuredQueue(QueueStats, frozen=True, kw_only=True):
    """A queue that was made unless it existed. `is_new`: it was made by this very call."""

    is_new: bool


class DefinedSubscription(SubscriptionStats, frozen=True, kw_only=True):
    """`secret` signs its callbacks. It is set only when it is new, and never shown again."""

    secret: str | None = None


class EnsuredSubscription(DefinedSubscription, frozen=True, kw_only=True):
    """One that was made unless it existed. `is_new`: it was made by this very call."""

    is_new: bool


def queue_stats(queue: Queue, now_ns: int, only: Sequence[str] | None = None) -> QueueStats:
    """With all its subscriptions, or `only` these. Raises `SubscriptionNotFound`."""
    readers: Iterable[Subscription] = queue.subscriptions.values()
    if only is not None:
        readers = [queue.subscription(name) for name in only]
    letters = queue.dead_letters.default if queue.dead_letters else None
    return QueueStats(
        name=queue.name,
        config=queue.config,
        created_at=to_datetime(queue.created_ns),
        first_index=queue.first,
        next_index=queue.next,
        messages=queue.messages,
        bytes=queue.timeline.bytes_from(queue.first) if queue.first < queue.next else 0,
        dead_letters=letters.unsettled if letters else 0,
        duplicates=queue.duplicates,
        purged=queue.purged,
        subscriptions=[subscription_stats(reader, now_ns) for reader in readers],
    )


def _places(subscription: Subscription) -> tuple[int, int, int, int]:
    """In flight, delayed, parked and held: everything that is unsettled but not ready."""
    return (
        len(subscription.leases),
        len(subscription.waiting.times),
        subscription.groups.parked,
        sum(stop - start for start, stop in subscription.held()),
    )


class KnownStats(msgspec.Struct, frozen=True, kw_only=True):
    """The stats of every queue that can be read now, by name.

    `missing` maps the queues that cannot be read to the reason. `unlisted` is set, to the reason,
    if there may be more queues that are not even known.
    """

    queues: list[QueueStats]
    missing: dict[str, str]
    unlisted: str | None = None

    def complete(self) -> list[QueueStats]:
        """Those of every queue. Raises `StoreUnavailable` if there may be others."""
        if self.unlisted is not None:
            raise StoreUnavailable(self.unlisted)
        if self.missing:
            name, why = next(iter(self.missing.items()))
            more = f" and {len(self.missing) - 1} others" if len(self.missing) > 1 else ""
            raise StoreUnavailable(f"queue {name!r}{more} cannot be looked at: {why}")
        return self.queues


def subscription_stats(subscription: Subscription, now_ns: int) -> SubscriptionStats:
    subscription.mature(now_ns)
    queue, feed, counters = subscription.queue, subscription.feed, subscription.counters
    unsettled = subscription.unsettled
    in_flight, delayed, parked, held = _places(subscription)
    floor = subscription.floor
    oldest_ns = None
    if floor < queue.next and unsettled:
        oldest_ns = queue.batch(floor).created_ns if queue.holds(floor) else None
    matched_since_start = feed.total - subscription.base_total
    return SubscriptionStats(
        name=subscription.name,
        config=subscription.config,
        created_at=to_datetime(subscription.created_ns),
        ready=unsettled - in_flight - delayed - parked - held,
        in_flight=in_flight,
        delayed=delayed,
        parked=parked,
        held=held,
        acked=counters.acked,
        filtered=queue.next - subscription.start - matched_since_start if feed.filter else 0,
        dead_lettered=counters.dead_lettered,
        expired=counters.expired,
        skipped=counters.skipped,
        purged=counters.purged,
        delivered=counters.delivered,
        redelivered=counters.redelivered,
        nacked=counters.nacked,
        leases_expired=counters.leases_expired,
        replayed=counters.replayed,
        discarded=counters.discarded,
        returned=counters.returned,
        filter_errors=feed.errors,
        cursor=subscription.cursor,
        lowest_unacked_index=floor,
        oldest_unacked_seconds=(
            None if oldest_ns is None else max(0, now_ns - oldest_ns) / NANOSECONDS
        ),
        last_delivery_at=_moment(subscription.last_delivery_ns),
        last_ack_at=_moment(subscription.last_ack_ns),
    )


def _moment(time_ns: int | None) -> datetime | None:
    return None if time_ns is None else to_datetime(time_ns)

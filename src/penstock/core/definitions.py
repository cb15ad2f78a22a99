"""Commands that define queues and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from penstock.core import events as ev
from penstock.core.callback import LIVE_SECRETS, check_secret
from penstock.core.config import (
    DEFAULT_SUBSCRIPTION,
    QueueConfig,
    SubscriptionConfig,
    check_text,
)
from penstock.core.dead_letters import cascade
from penstock.core.dependencies import check_dependencies
from penstock.core.filters import compile_filter
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX, check_name
from penstock.core.machine import Machine
from penstock.core.message import to_nanoseconds
from penstock.core.new_queue import new_dead_letter_queue, new_events_queue, new_queue
from penstock.core.queue import Queue
from penstock.core.runs import Run, Runs
from penstock.core.subscription import Subscription
from penstock.errors import (
    InvalidArgument,
    QueueExists,
    ReservedQueue,
    SubscriptionExists,
)

__all__ = [
    "Start",
    "alter_queue",
    "alter_subscription",
    "backfill_range",
    "changed",
    "check_definition",
    "check_queue",
    "create_queue",
    "create_subscription",
    "delete_queue",
    "delete_subscription",
    "first_secret",
    "next_secrets",
    "purge_queue",
    "queue_exists",
    "reserved_name",
    "resolve_start",
    "rotate_secret",
    "seek",
]

Config = TypeVar("Config", QueueConfig, SubscriptionConfig)

Start = str | int | datetime
"""``earliest``, ``latest``, an index, or a time."""


def create_queue(
    machine: Machine,
    name: str,
    config: QueueConfig,
    now_ns: int,
    default: SubscriptionConfig | None = None,
) -> Queue:
    """Create a queue, whose subscription `default` is as ``default`` says from the beginning."""
    default = SubscriptionConfig() if default is None else default
    name = check_queue(name, config, default)
    if name in machine.queues:
        raise queue_exists(name)
    if name.endswith(DEAD_LETTER_SUFFIX):
        raise reserved_name()
    if config.events:
        _check_events_name(machine, name)
    queue = new_queue(machine, name, config, default, now_ns)
    if config.events:
        new_events_queue(machine, queue, now_ns)
    return queue


def _check_events_name(machine: Machine, name: str) -> None:
    if name + EVENTS_SUFFIX in machine.queues:
        raise events_name_taken(name)


def events_name_taken(name: str) -> QueueExists:
    return QueueExists(
        f"queue {name + EVENTS_SUFFIX!r} exists already, and the events of {name!r} would be told "
        "there: delete that queue, or choose another name"
    )


def no_events_of_its_own(name: str) -> InvalidArgument:
    return InvalidArgument(f"{name!r} belongs to another queue and has no events of its own")


def holds_events(name: str, observed: str) -> ReservedQueue:
    return ReservedQueue(
        f"{name!r} holds the events of {observed!r}: purge it, or delete that queue"
    )


def check_queue(name: str, config: QueueConfig, default: SubscriptionConfig) -> str:
    """Returns the name. Raises if the definition is invalid, whatever other queues exist."""
    name = check_text("name", check_name(name, "queue"))
    check_kind(config, QueueConfig)
    config.check()
    check_kind(default, SubscriptionConfig)
    default.check()
    if default.filter is not None or default.after or default.callback is not None:
        raise InvalidArgument(
            "the subscription 'default' of a new queue has no filter and no callback, and waits "
            "for no other: alter it later, or create another one"
        )
    return name


def queue_exists(name: str) -> QueueExists:
    return QueueExists(f"queue {name!r} exists already: use it, or alter it")


def reserved_name() -> ReservedQueue:
    return ReservedQueue(
        f"names that end in {DEAD_LETTER_SUFFIX!r} are kept for dead letters: choose another name"
    )


def alter_queue(machine: Machine, name: str, changes: dict[str, Any], now_ns: int) -> Queue:
    """Alter a queue. A dead-letter queue that does not exist yet is created first."""
    source = _without_letters(machine, name)
    queue = machine.queue(name) if source is None else None
    before = QueueConfig() if queue is None else queue.config
    config = changed(before, changes)
    config.check()
    if queue is not None and config.fifo != before.fifo and queue.next > queue.first:
        raise InvalidArgument(
            "fifo can only be changed while the queue is empty: purge it, or make a new queue"
        )
    if config.events and (queue is None or queue.source is not None or queue.events_of is not None):
        raise no_events_of_its_own(name)
    if queue is None:
        assert source is not None
        queue = new_dead_letter_queue(machine, source, now_ns)
    is_new = config.events and queue.events is None
    if is_new:
        _check_events_name(machine, name)
    if config != queue.config:
        machine.emit(ev.QueueAltered(at_ns=now_ns, queue_id=queue.id, config=config))
    if is_new:
        new_events_queue(machine, queue, now_ns)
    return queue


def _without_letters(machine: Machine, name: str) -> Queue | None:
    """The queue whose dead letters this name is reserved for, if it has no dead-letter queue yet.

    None for the dead letters of a dead-letter queue: there are none.
    """
    if name in machine.queues or not name.endswith(DEAD_LETTER_SUFFIX):
        return None
    source = machine.queues.get(name.removesuffix(DEAD_LETTER_SUFFIX))
    return source if source is not None and source.source is None else None


def delete_queue(machine: Machine, name: str, now_ns: int) -> None:
    """Delete a queue together with its dead letters and its events."""
    queue = machine.queue(name)
    if queue.events_of is not None:
        raise holds_events(name, queue.events_of.name)
    if queue.source is not None:
        raise ReservedQueue(
            f"{name!r} holds the dead letters of {queue.source.name!r}: purge it, "
            "or delete that queue"
        )
    machine.emit(ev.QueueDeleted(at_ns=now_ns, queue_id=queue.id))


def purge_queue(machine: Machine, name: str, now_ns: int) -> int:
    """Remove every message for every subscription; returns how many. Dead letters stay."""
    queue = machine.queue(name)
    before = queue.purged
    if queue.messages:
        machine.emit(ev.QueuePurged(at_ns=now_ns, queue_id=queue.id))
    return queue.purged - before


def resolve_start(queue: Queue, start: Start) -> int:
    """The index that a start position means now. Raises `InvalidArgument`."""
    if type(start) is int:
        return min(max(start, queue.first), queue.next)
    if isinstance(start, datetime):
        index = queue.timeline.index_at_time(to_nanoseconds(start))
        return queue.next if index is None else max(index, queue.first)
    if isinstance(start, str) and start == "earliest":
        return queue.first
    if isinstance(start, str) and start == "latest":
        return queue.next
    raise InvalidArgument(f"start is {start!r}: use earliest, latest, an index or a time")


def backfill_range(queue: Queue, filter_text: str | None, start: int) -> Run | None:
    """The older messages to be filtered before anybody can read from ``start``, if any."""
    if filter_text is None:
        return None
    feed = queue.feeds.by_filter.get(filter_text)
    since = feed.since if feed else queue.next
    start = max(start, queue.first)
    return (start, since) if start < since else None


def _missing(matches: list[Run], backfill: Run | None) -> list[Run]:
    """The matches that the feed still lacks. Another reader may have added some in the meantime."""
    return list(Runs(matches).within(*backfill)) if backfill else []


def check_subscription(queue: Queue, name: str, config: SubscriptionConfig) -> None:
    """Raises if the definition is invalid."""

    def graph() -> dict[str, Sequence[str]]:
        return {other.name: other.config.after for other in queue.subscriptions.values()}

    check_definition(name, config, graph, of_dead_letters=queue.source is not None)


def check_definition(
    name: str,
    config: SubscriptionConfig,
    graph: Callable[[], Mapping[str, Sequence[str]]],
    *,
    of_dead_letters: bool,
) -> None:
    """Like `check_subscription`. ``graph`` maps each subscription to those it waits for.

    It is asked for only if this one waits for any: there may be many subscriptions.
    """
    check_name(name, "subscription")
    check_kind(config, SubscriptionConfig)
    config.check()
    if config.filter is not None:
        compile_filter(config.filter)
    if of_dead_letters:
        if name != DEFAULT_SUBSCRIPTION:
            raise ReservedQueue(
                "a dead-letter queue has its default subscription alone, which says which "
                "letters there are: consume that one"
            )
        if config.max_deliveries is not None:
            raise InvalidArgument("dead letters have no dead letters: leave max_deliveries unset")
    if config.after:
        check_dependencies(name, config.after, graph())


def create_subscription(
    machine: Machine,
    queue_name: str,
    name: str,
    config: SubscriptionConfig,
    start: int,
    matches: list[Run],
    now_ns: int,
    secret: str | None = None,
) -> Subscription:
    """``start`` is what `resolve_start` returned, ``matches`` the matches in its `backfill_range`.

    ``secret`` is for the callback, if there is one.
    """
    queue = machine.queue(queue_name)
    check_subscription(queue, name, config)
    if name in queue.subscriptions:
        raise SubscriptionExists(f"queue {queue_name!r} has a subscription {name!r} already")
    backfill = backfill_range(queue, config.filter, start)
    subscription_id = machine.new_id()
    machine.emit(
        ev.SubscriptionCreated(
            at_ns=now_ns,
            subscription_id=subscription_id,
            queue_id=queue.id,
            name=check_text("name", name),
            config=config,
            start=max(start, queue.first),
            since=backfill[0] if backfill else queue.next,
            backfill=ev.flat(_missing(matches, backfill)),
            secrets=first_secret(config, secret),
        )
    )
    subscription = machine.subscriptions[subscription_id]
    cascade(machine, subscription, now_ns)
    return subscription


def first_secret(config: SubscriptionConfig, secret: str | None) -> list[str]:
    if config.callback is None or secret is None:
        return []
    check_secret(secret)
    return [secret]


def alter_subscription(
    machine: Machine,
    queue_name: str,
    name: str,
    changes: dict[str, Any],
    now_ns: int,
    secret: str | None = None,
) -> Subscription:
    """``secret`` is for the callback, if there now is one and it has no secret yet."""
    subscription = machine.subscription(queue_name, name)
    config = changed(subscription.config, changes)
    if config.filter != subscription.config.filter:
        raise InvalidArgument(
            "a filter cannot be altered, because what it kept out is settled: "
            "create another subscription"
        )
    check_subscription(subscription.queue, name, config)
    secrets = None if subscription.secrets else first_secret(config, secret) or None
    if config != subscription.config or secrets:
        machine.emit(
            ev.SubscriptionAltered(
                at_ns=now_ns, subscription_id=subscription.id, config=config, secrets=secrets
            )
        )
        cascade(machine, subscription, now_ns)
    return subscription


def next_secrets(
    name: str, config: SubscriptionConfig, secret: str, secrets: Sequence[str]
) -> list[str]:
    """The secrets that sign callbacks once ``secret`` is added. Raises `InvalidArgument`."""
    check_secret(secret)
    if config.callback is None:
        raise InvalidArgument(f"subscription {name!r} has no callback, so it needs no secret")
    return [secret, *secrets][:LIVE_SECRETS]


def rotate_secret(
    machine: Machine, queue_name: str, name: str, secret: str, now_ns: int
) -> Subscription:
    """Sign with ``secret`` from now on, and also with the one before it."""
    subscription = machine.subscription(queue_name, name)
    secrets = next_secrets(name, subscription.config, secret, subscription.secrets)
    machine.emit(
        ev.SubscriptionAltered(
            at_ns=now_ns,
            subscription_id=subscription.id,
            config=subscription.config,
            secrets=secrets,
        )
    )
    return subscription


def delete_subscription(machine: Machine, queue_name: str, name: str, now_ns: int) -> None:
    """Delete a subscription. Messages that waited for it alone are released."""
    subscription = machine.subscription(queue_name, name)
    if subscription.queue.source is not None and name == DEFAULT_SUBSCRIPTION:
        raise ReservedQueue(
            "the default subscription of a dead-letter queue says which letters there are: "
            "it cannot be deleted"
        )
    children = list(subscription.children)
    machine.emit(ev.SubscriptionDeleted(at_ns=now_ns, subscription_id=subscription.id))
    for child in children:
        cascade(machine, child, now_ns)


def seek(
    machine: Machine,
    queue_name: str,
    name: str,
    index: int,
    matches: list[Run],
    now_ns: int,
) -> None:
    """Move a subscription back or forward. Deliveries in flight become void."""
    subscription = machine.subscription(queue_name, name)
    queue = subscription.queue
    if queue.source is not None:
        raise ReservedQueue("dead letters cannot be sought: replay or discard them")
    backfill = backfill_range(queue, subscription.config.filter, index)
    machine.emit(
        ev.Sought(
            at_ns=now_ns,
            subscription_id=subscription.id,
            index=max(index, queue.first),
            since=backfill[0] if backfill else subscription.feed.since,
            backfill=ev.flat(_missing(matches, backfill)),
        )
    )
    cascade(machine, subscription, now_ns)


def check_kind(config: object, kind: type[Any]) -> None:
    # Exactly that class: a subclass would be written with fields that cannot be read back.
    if type(config) is not kind:
        raise InvalidArgument(f"a config is {type(config).__name__}: pass a {kind.__name__}")


def changed(config: Config, changes: dict[str, Any]) -> Config:
    unknown = changes.keys() - set(config.__struct_fields__)
    if unknown:
        raise InvalidArgument(
            f"unknown setting {', '.join(sorted(unknown))}: "
            f"there are {', '.join(config.__struct_fields__)}"
        )
    return msgspec.structs.replace(config, **changes)

"""Changes of queues and subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import Any, NamedTuple

import msgspec

from penstock.core import definitions
from penstock.core.config import DEFAULT_SUBSCRIPTION, QueueConfig, SubscriptionConfig
from penstock.core.filters import compile_filter
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX
from penstock.core.message import to_nanoseconds
from penstock.core.runs import Runs
from penstock.errors import (
    InvalidArgument,
    QueueNotFound,
    ReservedQueue,
    SubscriptionExists,
    SubscriptionNotFound,
)
from penstock.storage import base
from penstock.storage.redis.connection import Argument
from penstock.storage.redis.definitions import (
    Feed,
    QueueDefinition,
    config_text,
    queue_fields,
    reader_fields,
)
from penstock.storage.redis.matching import matches
from penstock.storage.redis.messages import MICROSECONDS, to_messages
from penstock.storage.redis.steps import Arguments, Steps

__all__ = ["Defining"]

_pack = msgspec.msgpack.Encoder().encode

# How many old messages are put through a filter between two looks at Redis.
_CHUNK = 1000
# After this long nobody can still be putting old messages through a filter.
_RESERVATION_SECONDS = 24 * 3600
_ID_BITS = 48
_SALT_BITS = 32


class _Filtered(NamedTuple):
    """What is known before a filtered subscription is made: its matches from `first` on."""

    definition: QueueDefinition
    reservation: str
    first: int
    matches: list[int]


class Defining:
    """One method for each change. Those of one server are made in the order they are asked for."""

    def __init__(self, steps: Steps, rng: Random) -> None:
        self._steps = steps
        self._rng = rng
        self._turn = asyncio.Lock()

    async def apply(self, change: base.Change) -> None:
        await self._apply(change)
        if not isinstance(change, base.DeleteQueue):
            # Who defined something will use it: better learn it now than be refused first.
            with suppress(QueueNotFound):
                await self._steps.learn(change.queue)

    async def _apply(self, change: base.Change) -> None:
        if isinstance(change, base.CreateSubscription) and _filter_of(change) is not None:
            await self._create_filtered(change)
        elif isinstance(change, base.Seek):
            await self._seek(change)
        else:
            async with self._turn:
                await self._apply_at_once(change)

    async def _apply_at_once(self, change: base.Change) -> None:
        match change:
            case base.CreateQueue():
                await self._create_queue(change)
            case base.AlterQueue():
                await self._alter_queue(change)
            case base.DeleteQueue():
                await self._delete_queue(change)
            case base.PurgeQueue():
                await self._steps.take("purge_queue", change.queue, lambda definition: [])
            case base.CreateSubscription():
                await self._create_subscription(change)
            case base.AlterSubscription():
                await self._alter_subscription(change)
            case base.RotateSecret():
                await self._rotate_secret(change)
            case base.DeleteSubscription():
                await self._delete_subscription(change)

    # Queues.

    async def _create_queue(self, change: base.CreateQueue) -> None:
        steps = self._steps
        name = definitions.check_queue(change.queue, change.config)
        key = steps.keys.queue(name)
        if name.endswith(DEAD_LETTER_SUFFIX):
            if await steps.run("describe", key):
                raise definitions.queue_exists(name)
            raise definitions.reserved_name()
        parts = self._whole_queue(name, change.config, self._new_reader(SubscriptionConfig()))
        parts.append(self._events_queue(name) if change.config.events else False)
        # The name first: one that stands for nothing does no harm, a queue without one would.
        await self._add_names(name, change.config)
        answer = await steps.run("create_queue", key, steps.time, _pack(parts))
        if answer[0] == b"exists":
            raise definitions.queue_exists(name)
        if answer[0] == b"taken":
            raise definitions.events_name_taken(name)

    def _whole_queue(self, name: str, config: QueueConfig, default: Any, *more: Any) -> list[Any]:
        """Fields of a queue, its default subscription or False, and the same of its letters."""
        salt = self._rng.getrandbits(_SALT_BITS)
        own = [*self._new_queue(config, salt=salt), *more]
        letters = self._new_queue(QueueConfig(), salt=self._rng.getrandbits(_SALT_BITS))
        letters += ["source", name, "source_salt", salt]
        reader = self._new_reader(SubscriptionConfig(max_deliveries=None))
        return [own, default, letters, reader]

    def _events_queue(self, name: str) -> list[Any]:
        """Of a queue. It has no subscription: retention would keep everything for that."""
        return self._whole_queue(name + EVENTS_SUFFIX, QueueConfig(), False, "observed", name)

    async def _add_names(self, name: str, config: QueueConfig) -> None:
        names = [name, name + EVENTS_SUFFIX] if config.events else [name]
        async with self._steps.asking() as redis:
            await redis.sadd(self._steps.keys.queues, *names)

    def _new_queue(self, config: QueueConfig, *, salt: int) -> list[Any]:
        id = self._rng.getrandbits(_ID_BITS)
        return [*queue_fields(config), "id", id, "version", f"{id}.1", "salt", salt]

    def _new_reader(self, config: SubscriptionConfig, secrets: Sequence[str] = ()) -> list[Any]:
        return [*reader_fields(config, secrets), "id", self._rng.getrandbits(_ID_BITS)]

    async def _alter_queue(self, change: base.AlterQueue) -> None:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            config = definitions.changed(definition.config, change.changes)
            config.check()
            if config.events and (definition.source or definition.observed):
                raise definitions.no_events_of_its_own(change.queue)
            is_fifo_changed = config.fifo != definition.config.fifo
            events = _pack(self._events_queue(change.queue)) if config.events else b""
            version = ["version", definition.next_version]
            return ["1" if is_fifo_changed else "", events, *queue_fields(config), *version]

        if change.changes.get("events") is True:
            definition = await self._steps.definition(change.queue)
            if not (definition.source or definition.observed):
                await self._add_names(change.queue, QueueConfig(events=True))
        _, answer = await self._steps.take("alter_queue", change.queue, arguments)
        if answer[0] == b"taken":
            raise definitions.events_name_taken(change.queue)
        if answer[0] == b"fifo":
            raise InvalidArgument(
                "fifo can only be changed while the queue is empty: purge it, or make a new queue"
            )

    async def _delete_queue(self, change: base.DeleteQueue) -> None:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            if definition.source is not None:
                raise ReservedQueue(
                    f"{change.queue!r} holds the dead letters of {definition.source!r}: purge it, "
                    "or delete that queue"
                )
            if definition.observed is not None:
                raise definitions.holds_events(change.queue, definition.observed)
            return [""]

        await self._steps.take("delete_queue", change.queue, arguments)
        await self._forget(change.queue)

    async def drop(self, queue: str) -> None:
        """Whatever it is; see `HotStore`."""
        with suppress(QueueNotFound):
            await self._steps.take("delete_queue", queue, lambda definition: ["alone"])
        await self._forget(queue)

    async def _forget(self, queue: str) -> None:
        steps = self._steps
        steps.forget(queue)
        # Somebody may have made it anew already, so its name goes only if there is no such queue.
        async with steps.asking() as redis:
            for name in (queue, queue + EVENTS_SUFFIX):
                await redis.srem(steps.keys.queues, name)
                if await redis.exists(steps.keys.queue(name)):
                    await redis.sadd(steps.keys.queues, name)

    # Subscriptions.

    async def _create_subscription(
        self,
        change: base.CreateSubscription,
        start: tuple[str, Argument] | None = None,
        filtered: _Filtered | None = None,
    ) -> None:
        queue, name, config = change.queue, change.subscription, change.config
        new: list[Any] = []

        def arguments(now: QueueDefinition) -> Sequence[Argument]:
            if filtered is not None:
                _check_same(filtered.definition, now)
            _check_new(now, change)
            if not new:
                new.extend(
                    self._new_reader(config, definitions.first_secret(config, change.secret))
                )
            position = start or _start(change.start)
            reservation = filtered.reservation if filtered else ""
            older = (filtered.first, filtered.matches) if filtered else (0, [])
            return [now.next_version, name, _pack(new), *position, reservation, _pack(older)]

        _, answer = await self._steps.take("create_subscription", queue, arguments)
        if answer[0] == b"exists":
            raise _subscription_exists(queue, name)
        if answer[0] == b"unreserved":
            raise InvalidArgument("putting the old messages through the filter took over a day")

    async def _create_filtered(self, change: base.CreateSubscription) -> None:
        """Old messages are put through the filter first, and others may go on meanwhile."""
        queue, name = change.queue, change.subscription
        async with self._turn:
            definition = await self._steps.learn(queue)
        _check_new(definition, change)
        if name in definition.readers:
            raise _subscription_exists(queue, name)
        text = change.config.filter or ""
        reservation, first, since = await self._reserve(definition, text, _start(change.start))
        feed = Feed(key=name, filter=compile_filter(text))
        matches = await self._backfill(definition, feed, first, since)
        filtered = _Filtered(definition, reservation, first, matches)
        async with self._turn:
            # It starts where it would have when it was asked for: what is published goes on.
            await self._create_subscription(change, ("index", first), filtered)

    async def _reserve(
        self, definition: QueueDefinition, text: str, start: tuple[str, Argument]
    ) -> tuple[str, int, int]:
        """Have publishers apply the filter: under which id, and from which index on."""
        reservation = str(self._rng.getrandbits(_ID_BITS))
        kept = _RESERVATION_SECONDS * 1_000_000

        def arguments(now: QueueDefinition) -> Sequence[Argument]:
            _check_same(definition, now)
            return [now.next_version, reservation, text, kept, *start]

        async with self._turn:
            _, answer = await self._steps.take("reserve_filter", definition.name, arguments)
        return reservation, answer[1], answer[2]

    async def _backfill(
        self, definition: QueueDefinition, feed: Feed, start: int, stop: int
    ) -> list[int]:
        """The bounds of the old messages that match. There may be any number to look at."""
        found = Runs()
        for at in range(start, stop, _CHUNK):
            wanted = [at, min(_CHUNK, stop - at)]
            # In turn, so that others of this server see to the queue between two reads, not within.
            async with self._turn:
                now, answer = await self._steps.take("read", definition.name, _same(wanted))
            _check_same(definition, now)
            for message in to_messages(now, answer[1]):
                if message.index < stop and matches(feed, message):
                    found.add(message.index, message.index + 1)
        return [bound for run in found for bound in run]

    async def _alter_subscription(self, change: base.AlterSubscription) -> None:
        name = change.subscription

        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            reader = definition.reader(name)
            config = definitions.changed(reader.config, change.changes)
            if config.filter != reader.config.filter:
                raise InvalidArgument(
                    "a filter cannot be altered, because what it kept out is settled: "
                    "create another subscription"
                )
            of_letters = definition.source is not None
            definitions.check_definition(name, config, definition.graph, of_dead_letters=of_letters)
            secrets = reader.secrets or definitions.first_secret(config, change.secret)
            return [definition.next_version, name, _pack(reader_fields(config, secrets))]

        await self._steps.take("alter_subscription", change.queue, arguments)

    async def _rotate_secret(self, change: base.RotateSecret) -> None:
        name = change.subscription

        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            reader = definition.reader(name)
            secrets = definitions.next_secrets(name, reader.config, change.secret, reader.secrets)
            return [definition.next_version, name, _pack(reader_fields(reader.config, secrets))]

        await self._steps.take("alter_subscription", change.queue, arguments)

    async def _delete_subscription(self, change: base.DeleteSubscription) -> None:
        name = change.subscription

        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            definition.reader(name)
            if definition.source is not None and name == DEFAULT_SUBSCRIPTION:
                raise ReservedQueue(
                    "the default subscription of a dead-letter queue says which letters there are: "
                    "it cannot be deleted"
                )
            configs = {
                other.name: config_text(
                    msgspec.structs.replace(
                        other.config, after=tuple(p for p in other.config.after if p != name)
                    )
                )
                for other in definition.readers.values()
                if name in other.config.after
            }
            return [definition.next_version, name, _pack(configs)]

        await self._steps.take("delete_subscription", change.queue, arguments)

    async def _seek(self, change: base.Seek) -> None:
        queue, name = change.queue, change.subscription
        async with self._turn:
            definition = await self._steps.learn(queue)
        reader = definition.reader(name)
        start = _start(change.start)
        # Of a filter the matches must be known from where it goes to.
        known: tuple[int, list[int]] = (reader.since, [])

        def arguments(now: QueueDefinition) -> Sequence[Argument]:
            if now.source is not None:
                raise ReservedQueue("dead letters cannot be sought: replay or discard them")
            if now.id != definition.id or now.reader(name).id != reader.id:
                raise SubscriptionNotFound(
                    f"subscription {name!r} of queue {queue!r} was deleted and made anew in the "
                    "meantime: try again"
                )
            return [now.next_version, name, *start, _pack(known)]

        while True:
            async with self._turn:
                _, answer = await self._steps.take("seek", queue, arguments)
            if answer[0] != b"behind":
                return
            assert reader.config.filter is not None
            _, first, since = answer
            feed = Feed(key=name, filter=compile_filter(reader.config.filter))
            known = (first, await self._backfill(definition, feed, first, since) + known[1])


def _check_same(before: QueueDefinition, now: QueueDefinition) -> None:
    if now.id != before.id:
        raise QueueNotFound(
            f"queue {now.name!r} was deleted and made anew in the meantime: try again"
        )


def _check_new(definition: QueueDefinition, change: base.CreateSubscription) -> None:
    definitions.check_definition(
        change.subscription,
        change.config,
        definition.graph,
        of_dead_letters=definition.source is not None,
    )


def _filter_of(change: base.CreateSubscription) -> str | None:
    """Nothing has been checked yet."""
    return getattr(change.config, "filter", None)


def _same(arguments: Sequence[Argument]) -> Arguments:
    """Whatever the definitions are."""
    return lambda definition: arguments


def _subscription_exists(queue: str, name: str) -> SubscriptionExists:
    return SubscriptionExists(f"queue {queue!r} has a subscription {name!r} already")


def _start(start: definitions.Start) -> tuple[str, Argument]:
    """As scripts take it; raises `InvalidArgument`."""
    if type(start) is int:
        return "index", max(0, min(start, 2**53))
    if isinstance(start, datetime):
        return "time", -(-to_nanoseconds(start) // MICROSECONDS)
    if isinstance(start, str) and start in ("earliest", "latest"):
        return str(start), ""
    raise InvalidArgument(f"start is {start!r}: use earliest, latest, an index or a time")

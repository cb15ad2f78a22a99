"""Changes of subscriptions, and filtering the messages that were published before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any, NamedTuple

import msgspec

from penstock.core import definitions
from penstock.core.config import DEFAULT_SUBSCRIPTION, SubscriptionConfig
from penstock.core.filters import compile_filter
from penstock.core.message import to_nanoseconds
from penstock.core.runs import Runs
from penstock.errors import (
    InvalidArgument,
    QueueNotFound,
    ReservedQueue,
    StoreUnavailable,
    SubscriptionExists,
    SubscriptionNotFound,
)
from penstock.storage import base
from penstock.storage.redis.connection import Argument, bounded
from penstock.storage.redis.definitions import (
    Feed,
    QueueDefinition,
    ReaderDefinition,
    as_stored,
    config_text,
    microseconds,
    reader_fields,
)
from penstock.storage.redis.matching import matches
from penstock.storage.redis.messages import MICROSECONDS, to_messages
from penstock.storage.redis.steps import Arguments, Steps

__all__ = ["ID_BITS", "RESERVATION_SECONDS", "Subscribing", "new_reader_fields"]

_pack = msgspec.msgpack.Encoder().encode

ID_BITS = 48
"""The size of the ids of queues and subscriptions."""
RESERVATION_SECONDS = 24 * 3600
"""After this long, a reservation counts as abandoned."""

# How many old messages are read at a time to be filtered.
_CHUNK = 1000


class _EarlierMatches(NamedTuple):
    """The matches of a new filter among the messages from `first` up to its reservation."""

    definition: QueueDefinition
    reservation: str
    first: int
    matches: list[int]


def new_reader_fields(
    rng: Random, config: SubscriptionConfig, secrets: Sequence[str] = ()
) -> list[Any]:
    """The fields of a new subscription in Redis, with a random id."""
    return [*reader_fields(config, secrets), "id", rng.getrandbits(ID_BITS)]


class Subscribing:
    """``lock`` lets one change of this server be made at a time.

    `create_filtered` and `seek` may take long. They acquire it for each of their steps, so that
    other changes can be made in between. Callers of the other methods hold it.
    """

    def __init__(self, steps: Steps, rng: Random, lock: asyncio.Lock) -> None:
        self._steps = steps
        self._rng = rng
        self._lock = lock

    async def create(
        self,
        change: base.CreateSubscription,
        start: tuple[str, Argument] | None = None,
        earlier: _EarlierMatches | None = None,
    ) -> None:
        queue, name, config = change.queue, change.subscription, change.config
        new: list[Any] = []

        def arguments(now: QueueDefinition) -> Sequence[Argument]:
            if earlier is not None:
                _check_same_queue(earlier.definition, now)
            _check_definition(now, change)
            if not new:
                new.extend(
                    new_reader_fields(
                        self._rng, config, definitions.first_secret(config, change.secret)
                    )
                )
            position = start or _start_arguments(change.start)
            reservation = earlier.reservation if earlier else ""
            known = (earlier.first, earlier.matches) if earlier else (0, [])
            return [now.next_version, name, _pack(new), *position, reservation, _pack(known)]

        definition, answer = await self._steps.take("create_subscription", queue, arguments)
        if answer[0] == b"exists":
            raise _subscription_exists(queue, name)
        if answer[0] == b"unreserved":
            raise StoreUnavailable(
                "the queue was rebuilt while its messages were put through the filter, or that "
                "took over a day: try again"
            )
        if earlier is not None:
            # The reservation is gone, and the feed has another key: learn all of that now.
            with suppress(QueueNotFound):
                await self._steps.learn(queue)
            return
        reader = ReaderDefinition(
            name=name,
            id=new[-1],
            config=as_stored(config),
            since=answer[1],
            secrets=tuple(definitions.first_secret(config, change.secret)),
        )
        self._steps.note(definition.with_reader(reader))

    async def create_filtered(self, change: base.CreateSubscription) -> None:
        """Create a subscription with a filter, after filtering the messages that exist."""
        queue, name = change.queue, change.subscription
        async with self._lock:
            definition = await self._steps.learn(queue)
        _check_definition(definition, change)
        if name in definition.readers:
            raise _subscription_exists(queue, name)
        text = change.config.filter or ""
        reservation, first, since = await self._reserve(
            definition, text, _start_arguments(change.start)
        )
        feed = Feed(key=name, filter=compile_filter(text))
        matches = await self._backfill(definition, feed, first, since)
        earlier = _EarlierMatches(definition, reservation, first, matches)
        async with self._lock:
            # It starts where it would have started at the time of the call.
            await self.create(change, ("index", first), earlier)

    async def _reserve(
        self, definition: QueueDefinition, text: str, start: tuple[str, Argument]
    ) -> tuple[str, int, int]:
        """Make publishers apply the filter from now on.

        Returns the id of the reservation, the index where the subscription starts, and the one from
        which on publishers apply the filter.
        """
        reservation = str(self._rng.getrandbits(ID_BITS))
        kept = microseconds(RESERVATION_SECONDS)

        def arguments(now: QueueDefinition) -> Sequence[Argument]:
            _check_same_queue(definition, now)
            return [now.next_version, reservation, text, kept, *start]

        async with self._lock:
            _, answer = await self._steps.take("reserve_filter", definition.name, arguments)
        return reservation, answer[1], answer[2]

    async def _backfill(
        self, definition: QueueDefinition, feed: Feed, start: int, stop: int
    ) -> list[int]:
        """The bounds of the messages with ``start <= index < stop`` that match, however many."""
        found = Runs()
        for at in range(start, stop, _CHUNK):
            wanted = [at, min(_CHUNK, stop - at)]
            # So that other changes by this server come between two reads, not within one.
            async with self._lock:
                now, answer = await self._steps.take("read", definition.name, _fixed(wanted))
            _check_same_queue(definition, now)
            for message in to_messages(now, answer[1]):
                if message.index < stop and matches(feed, message):
                    found.add(message.index, message.index + 1)
        return [bound for run in found for bound in run]

    async def alter(self, change: base.AlterSubscription) -> None:
        name = change.subscription

        def altered(definition: QueueDefinition) -> ReaderDefinition:
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
            return replace(reader, config=as_stored(config), secrets=tuple(secrets))

        await self._replace(change.queue, altered)

    async def rotate_secret(self, change: base.RotateSecret) -> None:
        name = change.subscription

        def rotated(definition: QueueDefinition) -> ReaderDefinition:
            reader = definition.reader(name)
            secrets = definitions.next_secrets(name, reader.config, change.secret, reader.secrets)
            return replace(reader, secrets=tuple(secrets))

        await self._replace(change.queue, rotated)

    async def _replace(
        self, queue: str, changed: Callable[[QueueDefinition], ReaderDefinition]
    ) -> None:
        """Replace a subscription by what ``changed`` makes of it."""

        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            reader = changed(definition)
            fields = reader_fields(reader.config, reader.secrets)
            return [definition.next_version, reader.name, _pack(fields)]

        definition, _ = await self._steps.take("alter_subscription", queue, arguments)
        self._steps.note(definition.with_reader(changed(definition)))

    async def delete(self, change: base.DeleteSubscription) -> None:
        name = change.subscription

        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            definition.reader(name)
            if definition.source is not None and name == DEFAULT_SUBSCRIPTION:
                raise ReservedQueue(
                    "the default subscription of a dead-letter queue says which letters there are: "
                    "it cannot be deleted"
                )
            configs = {
                other.name: config_text(other.without_parent(name).config)
                for other in definition.readers.values()
                if name in other.config.after
            }
            return [definition.next_version, name, _pack(configs)]

        definition, _ = await self._steps.take("delete_subscription", change.queue, arguments)
        self._steps.note(definition.without_reader(name))

    async def seek(self, change: base.Seek) -> None:
        """Move a subscription, after filtering the messages whose matches are not known."""
        queue, name = change.queue, change.subscription
        async with self._lock:
            definition = await self._steps.learn(queue)
        reader = definition.reader(name)
        start = _start_arguments(change.start)
        # With a filter, its matches must be known from the new position on.
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
            async with self._lock:
                now, answer = await self._steps.take("seek", queue, arguments)
                if answer[0] != b"behind":
                    if reader.config.filter is not None:
                        moved = replace(now.reader(name), since=known[0])
                        self._steps.note(now.with_reader(moved))
                    return
            assert reader.config.filter is not None
            _, first, since = answer
            feed = Feed(key=name, filter=compile_filter(reader.config.filter))
            known = (first, await self._backfill(definition, feed, first, since) + known[1])


def _check_same_queue(before: QueueDefinition, now: QueueDefinition) -> None:
    if now.id != before.id:
        raise QueueNotFound(
            f"queue {now.name!r} was deleted and made anew in the meantime: try again"
        )


def _check_definition(definition: QueueDefinition, change: base.CreateSubscription) -> None:
    definitions.check_definition(
        change.subscription,
        change.config,
        definition.graph,
        of_dead_letters=definition.source is not None,
    )


def _fixed(arguments: Sequence[Argument]) -> Arguments:
    """Script arguments that do not depend on the definition."""
    return lambda definition: arguments


def _subscription_exists(queue: str, name: str) -> SubscriptionExists:
    return SubscriptionExists(f"queue {queue!r} has a subscription {name!r} already")


def _start_arguments(start: definitions.Start) -> tuple[str, Argument]:
    """Kind and value of a start position, for scripts. Raises `InvalidArgument`."""
    if type(start) is int:
        return "index", bounded(start)
    if isinstance(start, datetime):
        return "time", -(-to_nanoseconds(start) // MICROSECONDS)
    if isinstance(start, str) and start in ("earliest", "latest"):
        return str(start), ""
    raise InvalidArgument(f"start is {start!r}: use earliest, latest, an index or a time")

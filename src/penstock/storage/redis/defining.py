"""Changes of queues; those of subscriptions are in `subscribing`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from penstock.core import definitions
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX
from penstock.errors import InvalidArgument, QueueNotFound, ReservedQueue
from penstock.storage import base
from penstock.storage.archiving import QueueState
from penstock.storage.redis.connection import Argument
from penstock.storage.redis.definitions import QueueDefinition, queue_fields
from penstock.storage.redis.rebuilding import parse_snapshot
from penstock.storage.redis.steps import Steps
from penstock.storage.redis.subscribing import ID_BITS, Subscribing, new_reader_fields

__all__ = ["Defining"]

_pack = msgspec.msgpack.Encoder().encode

_SALT_BITS = 32


class Defining:
    """One method per change. One server makes its changes in the order of the calls."""

    def __init__(self, steps: Steps, rng: Random) -> None:
        self._steps = steps
        self._rng = rng
        self._turn = asyncio.Lock()
        self._subscribing = Subscribing(steps, rng, self._turn)

    async def apply(self, change: base.Change) -> None:
        await self._apply(change)
        if isinstance(change, base.CreateQueue | base.AlterQueue):
            # It will be used soon: learn it now, instead of being refused first.
            with suppress(QueueNotFound):
                await self._steps.learn(change.queue)

    async def _apply(self, change: base.Change) -> None:
        if isinstance(change, base.CreateSubscription) and _filter_of(change) is not None:
            await self._subscribing.create_filtered(change)
        elif isinstance(change, base.Seek):
            await self._subscribing.seek(change)
        else:
            async with self._turn:
                await self._apply_at_once(change)

    async def _apply_at_once(self, change: base.Change) -> None:
        match change:
            case base.CreateQueue():
                await self._create_queue(change)
            case base.AlterQueue():
                await self._alter_queue_or_letters(change)
            case base.DeleteQueue():
                await self._delete_queue(change)
            case base.CreateSubscription():
                await self._subscribing.create(change)
            case base.AlterSubscription():
                await self._subscribing.alter(change)
            case base.RotateSecret():
                await self._subscribing.rotate_secret(change)
            case base.DeleteSubscription():
                await self._subscribing.delete(change)

    async def _create_queue(self, change: base.CreateQueue) -> None:
        steps = self._steps
        name = definitions.check_queue(change.queue, change.config, change.default)
        key = steps.keys.queue(name)
        if name.endswith(DEAD_LETTER_SUFFIX):
            if await steps.run("describe", key, ""):
                raise definitions.queue_exists(name)
            raise definitions.reserved_name()
        parts = self._whole_queue(name, change.config, new_reader_fields(self._rng, change.default))
        parts.append(self._events_queue(name) if change.config.events else False)
        # The name first: a name without a queue is harmless, a queue without a name is not.
        await self._add_names(name, change.config)
        answer = await steps.run("create_queue", key, steps.time, _pack(parts))
        if answer[0] == b"exists":
            raise definitions.queue_exists(name)
        if answer[0] == b"taken":
            await self._unlist(name)
            raise definitions.events_name_taken(name)

    def _whole_queue(self, name: str, config: QueueConfig, default: Any, *more: Any) -> list[Any]:
        """A queue's fields, its default subscription or False, and the same for its letters."""
        salt = self._rng.getrandbits(_SALT_BITS)
        own = [*self._new_queue(config, salt=salt), *more]
        letters = self._new_queue(QueueConfig(), salt=self._rng.getrandbits(_SALT_BITS))
        letters += ["source", name, "source_salt", salt]
        reader = new_reader_fields(self._rng, SubscriptionConfig(max_deliveries=None))
        return [own, default, letters, reader]

    def _events_queue(self, name: str) -> list[Any]:
        """The events queue of a queue. It has no subscription: retention would keep everything."""
        return self._whole_queue(name + EVENTS_SUFFIX, QueueConfig(), False, "observed", name)

    async def _add_names(self, name: str, config: QueueConfig) -> None:
        names = [name, name + EVENTS_SUFFIX] if config.events else [name]
        await self._steps.prepare("SADD", self._steps.keys.queues, *names)

    def _new_queue(self, config: QueueConfig, *, salt: int) -> list[Any]:
        id = self._rng.getrandbits(ID_BITS)
        return [*queue_fields(config), "id", id, "version", f"{id}.1", "salt", salt]

    async def _alter_queue_or_letters(self, change: base.AlterQueue) -> None:
        """Alter a queue. A dead-letter queue that does not exist yet is created first."""
        source = change.queue.removesuffix(DEAD_LETTER_SUFFIX)
        try:
            await self._alter_queue(change)
        except QueueNotFound:
            if source == change.queue or not await self._may_have_letters(source):
                raise
            config = definitions.changed(QueueConfig(), change.changes)
            config.check()
            if config.events:
                raise definitions.no_events_of_its_own(change.queue) from None
            await self._steps.take("make_letters", source, lambda definition: [])
            await self._alter_queue(change)

    async def _may_have_letters(self, queue: str) -> bool:
        """Whether the queue exists, and is not a dead-letter queue itself."""
        with suppress(QueueNotFound):
            return (await self._steps.learn(queue)).source is None
        return False

    async def _alter_queue(self, change: base.AlterQueue) -> None:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            config = definitions.changed(definition.config, change.changes)
            config.check()
            if config.events and (definition.source or definition.observed):
                raise definitions.no_events_of_its_own(change.queue)
            is_fifo_changed = config.fifo != definition.config.fifo
            # Not for a change of something else: an events queue that is missing may be on its way.
            has_new_events = config.events and "events" in change.changes
            events = _pack(self._events_queue(change.queue)) if has_new_events else b""
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

    async def drop(self, queue: str) -> QueueState | None:
        """See `HotStore`."""
        state = None
        with suppress(QueueNotFound):
            _, (_, answer) = await self._steps.take(
                "delete_queue", queue, lambda definition: ["alone"]
            )
            state = parse_snapshot(queue, answer)
        await self._forget(queue)
        return state

    async def _forget(self, queue: str) -> None:
        self._steps.forget(queue)
        for name in (queue, queue + EVENTS_SUFFIX):
            await self._unlist(name)

    async def _unlist(self, name: str) -> None:
        steps = self._steps
        await steps.command("SREM", steps.keys.queues, name)
        # It may have been created again already, so put its name back if the queue exists.
        if await steps.command("EXISTS", steps.keys.queue(name)):
            await steps.command("SADD", steps.keys.queues, name)


def _filter_of(change: base.CreateSubscription) -> str | None:
    """The filter of a change that is not checked yet."""
    return getattr(change.config, "filter", None)

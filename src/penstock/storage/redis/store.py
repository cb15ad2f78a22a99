"""The storage contract on Redis: each method is one script, which is one atomic step."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from functools import partial
from random import Random, SystemRandom

import msgspec

from penstock.clock import Clock
from penstock.core.callback import CallbackTarget
from penstock.core.config import check_seconds, check_text, check_whole
from penstock.core.graph import HeldMessage
from penstock.core.limits import is_name
from penstock.core.message import Delivery, Message, ViewedMessage, parse_message_id
from penstock.core.publishing import NewBatch, PublishResult
from penstock.core.settling import Outcome
from penstock.core.stats import KnownStats, QueueStats
from penstock.errors import (
    InvalidArgument,
    MessageNotFound,
    NotHeld,
    NotLeased,
    PenstockError,
    SubscriptionNotFound,
)
from penstock.storage import base
from penstock.storage.archiving import QueueState
from penstock.storage.block import Chunk
from penstock.storage.redis.channels import Channels
from penstock.storage.redis.connection import (
    MOST,
    TIMEOUT_SECONDS,
    Argument,
    Connection,
    bounded,
)
from penstock.storage.redis.defining import Defining
from penstock.storage.redis.definitions import QueueDefinition, microseconds
from penstock.storage.redis.gathering import Gathering
from penstock.storage.redis.messages import (
    MICROSECONDS,
    to_blocks,
    to_deliveries,
    to_messages,
)
from penstock.storage.redis.overview import Overview
from penstock.storage.redis.publishing import Publishing
from penstock.storage.redis.rebuilding import Rebuilding
from penstock.storage.redis.settling import pack_settlements, parse_outcomes
from penstock.storage.redis.shared import RedisShared
from penstock.storage.redis.stats import parse_stats
from penstock.storage.redis.steps import Arguments, Steps, on
from penstock.storage.redis.telling import Telling
from penstock.storage.redis.waiting import Waiting
from penstock.storage.ticking import Ticker

__all__ = ["RedisStore"]

logger = logging.getLogger(__name__)

_pack = msgspec.msgpack.Encoder().encode


class RedisStore:
    """Has no state but a cache of definitions, so any number of servers may share one Redis."""

    def __init__(
        self,
        connection: Connection,
        durability: base.Durability,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self._connection = connection
        self._rng = rng or SystemRandom()
        self._steps = Steps(connection, clock)
        self._publishing = Publishing(self._steps, durability)
        self._steps.tell_events = Telling(self._steps, self._publishing.append).tell
        self._overview = Overview(self._steps)
        self._defining = Defining(self._steps, self._rng)
        self._rebuilding = Rebuilding(self._steps)
        self._gathering = Gathering(self._publishing.publish)
        self._channels = Channels(connection.driver)
        self._waiting = Waiting(self._steps, self._channels)
        self._shared = RedisShared(self._steps, self._channels)
        self._consumer = f"{socket.gethostname()}-{os.getpid()}"
        self._token = f"{self._consumer}-{SystemRandom().getrandbits(64):x}"
        self._ticker = Ticker()
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> RedisStore:
        """A Redis that does not answer for ``timeout_seconds`` counts as away.

        Raises `StoreUnavailable` if nobody answers at that address, and `InvalidArgument` for a
        Redis that would evict queues. One node of a cluster is enough; the others are checked as
        they come up.
        """
        connection = Connection(url, timeout_seconds=timeout_seconds)
        try:
            await connection.check_masters()
            connection.check_policy()
        except BaseException:
            await connection.close()
            raise
        return cls(connection, connection.durability(), clock=clock, rng=rng)

    @property
    def durability(self) -> base.Durability:
        return self._publishing.durability

    @property
    def problem(self) -> str | None:
        return "the store was closed" if self._steps.is_closed else self._steps.problem

    @property
    def services(self) -> dict[str, str | None]:
        nodes = self._connection.driver.nodes
        problem = self._steps.problem
        return {"redis": problem} | {f"redis {name}": why for name, why in nodes.items()}

    @property
    def shared(self) -> RedisShared:
        return self._shared

    @property
    def round_trips(self) -> int:
        """How often a script was run."""
        return self._connection.round_trips

    async def define(self, change: base.Change) -> None:
        await self._defining.apply(change)

    # Messages.

    def publish(self, queue: str, batch: NewBatch) -> Awaitable[PublishResult]:
        return self._gathering.add(queue, batch)

    async def receive(self, queue: str, subscription: str, wanted: base.Wanted) -> list[Delivery]:
        match wanted:
            case base.Next():
                return await self._deliver(
                    "receive", queue, subscription, self._next(subscription, wanted)
                )
            case base.Poll():
                return await self._deliver(
                    "poll", queue, subscription, self._poll(subscription, wanted)
                )
            case base.Again():
                return await self._ask_again(queue, subscription, wanted.index)

    def _next(self, subscription: str, wanted: base.Next) -> Arguments:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            definition.reader(subscription)
            check_whole("limit", wanted.limit, 1)
            lease: Argument = ""
            if wanted.lease_seconds is not None:
                check_seconds("lease_seconds", wanted.lease_seconds)
                lease = microseconds(wanted.lease_seconds)
            limits = [min(wanted.limit, MOST), lease, _bytes(wanted.most_bytes)]
            return [subscription, self._consumer, *limits]

        return arguments

    def _poll(self, subscription: str, wanted: base.Poll) -> Arguments:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            definition.reader(subscription)
            check_whole("start", wanted.start, 0)
            check_whole("count", wanted.count, 1)
            bounds = [min(wanted.start, MOST), min(wanted.count, MOST)]
            return [subscription, self._consumer, *bounds, _bytes(wanted.most_bytes)]

        return arguments

    async def _deliver(
        self, name: str, queue: str, subscription: str, arguments: Arguments
    ) -> list[Delivery]:
        """If the caller is cancelled, what was delivered nevertheless is given back."""

        async def deliver() -> list[Delivery]:
            definition, answer = await self._steps.take(name, queue, arguments)
            return to_deliveries(definition, definition.reader(subscription), answer)

        task = asyncio.get_running_loop().create_task(deliver())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(PenstockError):
                deliveries = await task
                if deliveries:
                    await self.settle(queue, subscription, [base.GiveBack(targets=deliveries)])
            raise

    async def _ask_again(self, queue: str, subscription: str, index: int) -> list[Delivery]:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            definition.reader(subscription)
            check_whole("index", index)
            return [subscription, self._consumer, bounded(index, -1)]

        definition, answer = await self._steps.take("ask_again", queue, arguments)
        reader = definition.reader(subscription)
        match answer[0]:
            case b"missing":
                raise MessageNotFound(
                    f"queue {queue!r} holds no message {index} for {subscription!r}"
                )
            case b"paused":
                raise NotLeased(f"subscription {subscription!r} is paused: resume it first")
            case b"unknown":
                raise NotLeased(
                    f"message {index} was not delivered on {subscription!r} before, or is "
                    "settled: receive or poll it instead"
                )
            case b"busy":
                raise NotLeased(
                    f"subscription {subscription!r} has {answer[1]} messages in flight, which is "
                    "its max_in_flight: settle some first"
                )
        deliveries = to_deliveries(definition, reader, answer)
        if not deliveries:
            raise MessageNotFound(f"message {index} of queue {queue!r} is gone")
        return deliveries

    async def settle(
        self, queue: str, subscription: str, settlements: Sequence[base.Settlement]
    ) -> list[Sequence[Outcome]]:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            reader = definition.reader(subscription)
            return [subscription, pack_settlements(definition, reader, settlements, self._rng)]

        _, answer = await self._steps.take("settle", queue, arguments)
        return parse_outcomes(answer[1:])

    # Reading.

    async def read(self, queue: str, wanted: base.Span | Sequence[str]) -> list[Message]:
        if isinstance(wanted, base.Span):
            bounds = [bounded(wanted.start), min(wanted.limit, MOST)]
            definition, answer = await self._steps.take("read", queue, lambda _: bounds)
        else:
            definition, answer = await self._steps.take(
                "find", queue, lambda now: [_pack(_ids(now, wanted))]
            )
        return to_messages(definition, answer[1])

    async def scan(self, queue: str, start: int, stop: int, most_bytes: int) -> Chunk:
        wanted = [bounded(start), bounded(stop), min(most_bytes, MOST)]
        definition, answer = await self._steps.take("scan", queue, lambda _: wanted)
        return Chunk(to_blocks(definition, answer[1]), answer[2], definition.message_salt)

    async def view(
        self, queue: str, subscription: str, which: base.View, limit: int, start: int = 0
    ) -> list[ViewedMessage]:
        wanted = on(subscription, which, min(limit, MOST), bounded(start))
        definition, answer = await self._steps.take("view", queue, wanted)
        return [
            ViewedMessage.of(
                message,
                is_settled=bool(is_settled),
                deliveries=deliveries,
                leased_until_ns=deadline * MICROSECONDS if deadline >= 0 else None,
            )
            for message, (is_settled, deliveries, deadline) in zip(
                to_messages(definition, answer[1]), answer[2], strict=True
            )
        ]

    async def stats(self, after: str = "", limit: int | None = None) -> KnownStats:
        return await self._overview.stats(after, limit)

    async def queue_stats(self, queue: str, only: Sequence[str] | None = None) -> QueueStats:
        await self._overview.tell_events(queue)
        # What is not a name must not get into a key.
        which = b"" if only is None else _pack([one for one in only if is_name(one)])
        stats = parse_stats(queue, await self._steps.ask("stats", queue, self._steps.time, which))
        missing = set(only or ()).difference(one.name for one in stats.subscriptions)
        if missing:
            raise SubscriptionNotFound(
                f"queue {queue!r} has no subscription {min(missing)!r}: create it first"
            )
        return stats

    async def names(self) -> list[str]:
        return await self._overview.names()

    async def known_names(self) -> list[str]:
        names, _ = await self._overview.names_or_known()
        return names

    # What an operator does.

    async def operate(self, queue: str, action: base.Action) -> int:
        match action:
            case base.Purge():
                return await self._count("purge_queue", queue, lambda _: [])
            case base.Replay():
                return await self._count("redrive", queue, _letters("replayed", action.ids))
            case base.Discard():
                return await self._count("redrive", queue, _letters("discarded", action.ids))
            case base.Release():
                return await self._release(queue, action.subscription, action.indexes)

    async def _count(self, script: str, queue: str, arguments: Arguments) -> int:
        """Run a script that answers how many messages it concerned."""
        _, answer = await self._steps.take(script, queue, arguments)
        return int(answer[1])

    async def _release(self, queue: str, subscription: str, indexes: Sequence[int]) -> int:
        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            definition.reader(subscription)
            for index in indexes:
                check_whole("an index", index)
            return [subscription, *(bounded(index, -1) for index in indexes)]

        _, answer = await self._steps.take("release", queue, arguments)
        if answer[0] == b"missing":
            raise MessageNotFound(f"queue {queue!r} holds no message at index {int(answer[1])}")
        if answer[0] == b"free":
            raise NotHeld(
                f"message {int(answer[1])} is not held back on subscription {subscription!r}"
            )
        return len(indexes)

    async def held(self, queue: str, subscription: str, limit: int) -> list[HeldMessage]:
        wanted = on(subscription, min(limit, MOST))
        _, answer = await self._steps.take("held", queue, wanted)
        return [
            HeldMessage(index=index, waits_for=[name.decode() for name in names])
            for index, names in zip(answer[1], answer[2], strict=True)
        ]

    # For an archive: see `HotStore`.

    async def version(self, queue: str) -> str | None:
        found = await self._steps.command("HGET", self._steps.keys.queue(queue), "version")
        return None if found is None else str(found, "utf-8")

    async def rebuilt(self, queue: str) -> str | None:
        if not is_name(queue):  # what is not a name must not get into a key
            return None
        key = self._steps.keys.queue(queue)
        version, token = await self._steps.command("HMGET", key, "version", "rebuilt")
        return None if version is None else (token or b"").decode()

    async def snapshot(self, queue: str, known: QueueState | None = None) -> QueueState | None:
        await self._overview.tell_events(queue)
        return await self._rebuilding.snapshot(queue, known)

    async def restore(
        self,
        state: QueueState,
        messages: AsyncIterator[Sequence[Message]],
        had_from: int | None = None,
    ) -> bool:
        return await self._rebuilding.restore(state, messages, had_from)

    async def drop(self, queue: str) -> QueueState | None:
        return await self._defining.drop(queue)

    async def is_complete(self, archive: str) -> bool:
        return await self._rebuilding.is_complete(archive)

    async def set_complete(self, archive: str) -> None:
        await self._rebuilding.set_complete(archive)

    async def lock(self, name: str, seconds: float) -> bool:
        return await self._rebuilding.lock(name, self._token, seconds)

    async def renew(self, name: str, seconds: float) -> bool:
        return await self._rebuilding.renew(name, self._token, seconds)

    async def unlock(self, name: str) -> None:
        await self._rebuilding.unlock(name, self._token)

    # Waiting and time.

    async def wait(
        self, queue: str, subscription: str, timeout_seconds: float, beyond: int | None = None
    ) -> int | None:
        if beyond is None:
            return await self._waiting.wait(queue, subscription, timeout_seconds)
        return await self._waiting.wait_beyond(queue, subscription, beyond, timeout_seconds)

    async def callbacks(self, queue: str | None = None) -> list[CallbackTarget]:
        return await self._overview.callbacks(queue)

    async def tick(self, every_seconds: float = 0) -> None:
        """Do what is due in every queue, unless another server did within ``every_seconds``.

        There is no leader: whichever server comes first does the work. A queue whose node is away,
        or whose keys somebody has damaged, does not affect the others; its error is raised at the
        end.
        """
        if self._connection.driver.is_cluster:
            await self._check_masters()
        await self._overview.sweep(every_seconds)

    async def _check_masters(self) -> None:
        """Check nodes that were away before, or are new."""
        if await self._connection.check_masters():
            self._publishing.durability = self._connection.durability()
            try:
                self._connection.check_policy()
            except InvalidArgument as exc:
                logger.error("%s", exc)

    def watch_letters(self, watch: base.LetterWatch) -> None:
        self._overview.watch = watch

    def start_ticking(self, every_seconds: float) -> None:
        """Call `tick` regularly until the store is closed."""
        self._ticker.start(partial(self.tick, 0.9 * every_seconds), every_seconds)

    async def close(self) -> None:
        if self._closing is None:
            self._steps.is_closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # Shielded, so that it completes even if this caller is cancelled.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._gathering.finish()
        await self._ticker.stop()
        await self._shared.close()
        await self._channels.close()
        await self._steps.finish()
        await self._connection.close()


def _bytes(most: int | None) -> Argument:
    return "" if most is None else min(most, MOST)


def _letters(way: str, ids: Sequence[str] | None) -> Arguments:
    """The arguments of a script on a queue's dead letters: all, or those with these ids."""
    return lambda definition: [way, b"" if ids is None else _pack(_ids(definition, ids))]


def _ids(definition: QueueDefinition, ids: Sequence[str]) -> list[int]:
    """The index and time of each id, flat; -1 for what is not an id of this queue."""
    found: list[int] = []
    for id in ids:
        parsed = parse_message_id(check_text("an id", id))
        if parsed is None or parsed.salt != definition.salt:
            found += (-1, -1)
        else:
            found += (parsed.index, parsed.created_ms)
    return found

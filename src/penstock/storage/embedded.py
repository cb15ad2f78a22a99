"""The storage contract on top of the machine. `memory` and `wal` differ only in their journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress

from penstock.clock import Clock
from penstock.core import (
    dead_letters,
    definitions,
    delivery,
    retention,
    settling,
)
from penstock.core.callback import CallbackTarget
from penstock.core.config import check_seconds, check_whole
from penstock.core.events import DeadLettered
from penstock.core.graph import HeldMessage
from penstock.core.machine import Machine
from penstock.core.message import DeadLetter, Delivery, Message, ViewedMessage
from penstock.core.publishing import NewBatch, PublishResult
from penstock.core.queue import Queue
from penstock.core.runs import Run, cut, runs_of
from penstock.core.settling import Outcome
from penstock.core.stats import KnownStats, QueueStats, queue_stats
from penstock.core.subscription import Subscription
from penstock.core.telling import tell
from penstock.errors import (
    Conflict,
    DiskFull,
    MessageNotFound,
    StorageClosed,
    StorageError,
    StorageFailed,
)
from penstock.storage import base
from penstock.storage.answers import Done
from penstock.storage.block import Chunk
from penstock.storage.defining import Defining
from penstock.storage.gathered_acks import GatheredAcks
from penstock.storage.gathered_publishes import GatheredPublishes
from penstock.storage.gathered_receives import GatheredReceives, Wish
from penstock.storage.journal import MessageJournal
from penstock.storage.reader import MessageReader
from penstock.storage.settlements import count_targets, settle_all
from penstock.storage.ticking import Ticker
from penstock.storage.waiters import Waiters
from penstock.turns import Turns

__all__ = ["EmbeddedStore"]

# Roughly the size of a command's events, and what each of its targets adds.
_EVENT_BYTES = 256
_TARGET_BYTES = 64
# Roughly the size of a message's row in the events queue, if its queue has one.
_ROW_BYTES = 256


class EmbeddedStore:
    """Runs on one event loop. Commands are decided and applied without an await, then committed.

    Publishes, receives and acks are gathered, and decided at the end of the loop's turn.
    """

    def __init__(self, *, machine: Machine, journal: MessageJournal, clock: Clock) -> None:
        self.machine = machine
        self._journal = journal
        self._clock = clock
        self._reader = MessageReader(journal)
        self._waiters = Waiters()
        self._publishes = GatheredPublishes(
            machine=machine,
            journal=journal,
            call_when_committed=self._call_when_committed,
            now_ns=self._now,
            on_published=self._on_published,
        )
        self._receives = GatheredReceives(
            machine=machine,
            journal=journal,
            call_when_committed=self._call_when_committed,
            now_ns=self._now,
            deliver_nowait=self._reader.deliver_nowait,
        )
        self._acks = GatheredAcks(
            machine=machine,
            journal=journal,
            call_when_committed=self._call_when_committed,
            now_ns=self._now,
            on_acked=self._on_acked,
        )
        self._defining = Defining(
            machine=machine, reader=self._reader, waiters=self._waiters, now_ns=self._now
        )
        self._closed = False
        self._ticker = Ticker()
        self._closing: asyncio.Task[None] | None = None

    @property
    def durability(self) -> base.Durability:
        return self._journal.durability

    @property
    def problem(self) -> str | None:
        return "the store was closed" if self._closed else self._journal.problem

    @property
    def services(self) -> dict[str, str | None]:
        return {}

    @property
    def shared(self) -> None:
        return None

    def _now(self) -> int:
        if self._closed:
            raise StorageClosed("the store was closed: open it again")
        return self.machine.advance(self._clock.now_ns())

    def _admit(self, targets: int = 0) -> int:
        """Refuse a command other than a publish if the disk is full, before anything changes.

        Returns the bytes that it may take. This does not wait for space: a command takes effect at
        once, or at the end of this turn of the loop.
        """
        each = _TARGET_BYTES + _ROW_BYTES if self.machine.is_observed else _TARGET_BYTES
        size = _EVENT_BYTES + each * targets
        if not self._journal.has_settle_room(self._acks.size + self._receives.size + size):
            raise DiskFull("there is no disk space left to note this: free some, then try again")
        return size

    def submit(self) -> asyncio.Future[None] | None:
        """End a command: publish its lifecycle events, and commit both together."""
        self._tell()
        return self._journal.submit()

    def _call_when_committed(self, done: Done) -> None:
        """As `submit`; see `MessageJournal.call_when_committed`."""
        self._tell()
        self._journal.call_when_committed(done)

    def _tell(self) -> None:
        machine = self.machine
        if machine.untold:
            for events in tell(machine, machine.now_ns):
                self._waiters.wake(events, machine.now_ns)

    async def _commit(self) -> None:
        committed = self.submit()
        if committed is not None:
            await committed

    def watch_letters(self, watch: base.LetterWatch) -> None:
        def buried(queue: Queue, event: DeadLettered) -> None:
            letter = DeadLetter(
                queue=queue.name,
                subscription=event.subscription,
                index=event.index,
                deliveries=event.deliveries,
                reason=event.reason,
                failed_at_ns=event.at_ns,
            )
            watch.buried(queue.id_of(event.index), letter)

        self.machine.on_buried = buried

    async def define(self, change: base.Change) -> None:
        self._admit()
        try:
            await self._defining.define(change)
        except Conflict:
            # What it conflicts with is named in the answer, so that must be there to stay.
            await self._commit()
            raise
        await self._commit()

    # Messages.

    def publish(self, queue: str, batch: NewBatch) -> Awaitable[PublishResult]:
        # The events can repeat each message's topic, hence its size, on top of the rows.
        is_told = self.machine.is_observed
        overhead = batch.size + _ROW_BYTES * len(batch.bodies) if is_told else 0
        if self._journal.has_room(self._publishes.size + batch.size + overhead):
            return self._publishes.add(queue, batch, overhead=overhead)
        return self._publish_when_there_is_room(queue, batch, overhead)

    async def _publish_when_there_is_room(
        self, queue: str, batch: NewBatch, overhead: int
    ) -> PublishResult:
        size = batch.size + overhead
        while not self._journal.has_room(self._publishes.size + size):
            # Others may take the room while this one waits, so it checks again.
            await self._journal.make_room(self._publishes.size + size)
        return await self._publishes.add(queue, batch, overhead=overhead)

    def _on_acked(self, queue: str, subscription: str) -> bool:
        machine = self.machine
        reader = machine.subscription(queue, subscription)
        return self._waiters.wake_settled(reader, machine.now_ns)

    def _on_published(self, queue: str, count: int) -> bool:
        return self._waiters.wake_fed(self.machine.queues[queue], count, self.machine.now_ns)

    async def receive(self, queue: str, subscription: str, wanted: base.Wanted) -> list[Delivery]:
        size = self._admit()
        if isinstance(wanted, base.Next):
            check_whole("limit", wanted.limit, 1)
            if wanted.lease_seconds is not None:
                check_seconds("lease_seconds", wanted.lease_seconds)
            self._now()
            want = delivery.Want(wanted.limit, wanted.most_bytes)
            return await self._hand_over(
                self._receives.add(queue, subscription, want, wanted.lease_seconds, size)
            )
        machine, now_ns = self.machine, self._now()
        if isinstance(wanted, base.Poll):
            start, count, most_bytes = wanted.start, wanted.count, wanted.most_bytes
            return await self._hand_out(
                delivery.poll(machine, queue, subscription, start, count, now_ns, most_bytes)
            )
        again = delivery.ask_again(machine, queue, subscription, wanted.index, now_ns)
        deliveries = await self._hand_out(again)
        if not deliveries:
            raise MessageNotFound(f"message {wanted.index} of queue {queue!r} is gone")
        return deliveries

    async def _hand_over(self, wish: Wish) -> list[Delivery]:
        try:
            await wish.decided
            if wish.deliveries is not None:
                return wish.deliveries
            return [] if wish.handout is None else await self._reader.deliver(wish.handout)
        except asyncio.CancelledError:
            if wish.handout is not None:
                self._undo(wish.handout)
            raise

    async def _hand_out(self, handout: delivery.Handout | None) -> list[Delivery]:
        if handout is None:
            return []
        try:
            committed = self.submit()
            # Assemble what is in memory while the disk is busy.
            deliveries = self._reader.deliver_nowait(handout)
            if committed is not None:
                await committed
            return await self._reader.deliver(handout) if deliveries is None else deliveries
        except asyncio.CancelledError:
            self._undo(handout)
            raise

    def _undo(self, handout: delivery.Handout) -> None:
        """Take back what a cancelled caller would have got: ready again, and not counted.

        If that cannot be stored, the lease simply runs out.
        """
        with suppress(StorageError):
            now_ns = self._now()
            settling.undo(self.machine, handout, now_ns)
            committed = self.submit()
            if committed is not None:
                committed.add_done_callback(_hear)
            self._waiters.wake_settled(handout.subscription, now_ns)

    async def settle(
        self, queue: str, subscription: str, settlements: Sequence[base.Settlement]
    ) -> list[Sequence[Outcome]]:
        size = self._admit(count_targets(settlements))
        machine = self.machine
        now_ns = self._now()
        if len(settlements) == 1 and isinstance(settlements[0], base.Ack):
            targets = settlements[0].targets
            return [await self._acks.add(queue, subscription, targets, size)]
        outcomes = settle_all(machine, queue, subscription, settlements, now_ns)
        if self._waiters.wake_settled(machine.subscription(queue, subscription), now_ns):
            await self._next_turn()
        committed = self.submit()
        if committed is not None:
            await committed
        return outcomes

    async def _next_turn(self) -> None:
        """Let woken waiters run first, so that what they take is committed with what woke them."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.submit()
            raise

    # Reading.

    async def read(self, queue: str, wanted: base.Span | Sequence[str]) -> list[Message]:
        self._now()
        found = self.machine.queue(queue)
        if isinstance(wanted, base.Span):
            start = max(wanted.start, found.first)
            return await self._read(found, [(start, min(start + wanted.limit, found.next))])
        indexes = [index for id in wanted if (index := found.index_of(id)) is not None]
        messages = await self._read(found, runs_of(indexes))
        by_index = {message.index: message for message in messages}
        return [by_index[index] for index in indexes if index in by_index]

    async def scan(self, queue: str, start: int, stop: int, most_bytes: int) -> Chunk:
        self._now()
        found = self.machine.queue(queue)
        with suppress(StorageFailed):
            await self._commit()
        return await self._reader.scan(found, start, stop, most_bytes)

    async def view(
        self, queue: str, subscription: str, which: base.View, limit: int, start: int = 0
    ) -> list[ViewedMessage]:
        self._now()
        reader = self.machine.subscription(queue, subscription)
        found = reader.queue
        first = min(max(start, found.first), found.next)
        if which == "all":
            runs: Iterable[Run] = [(first, found.next)]
        elif which == "settled":
            runs = reader.settled_within(first, found.next)
        else:
            runs = reader.unsettled_within(start, found.next)
        messages = await self._read(found, cut(runs, limit))
        return [
            ViewedMessage.of(
                message,
                is_settled=reader.is_settled(message.index),
                deliveries=reader.deliveries_of(message.index),
                leased_until_ns=lease.deadline_ns if lease else None,
            )
            for message in messages
            for lease in [reader.leases.get(message.index)]
        ]

    async def _read(self, queue: Queue, runs: list[Run]) -> list[Message]:
        """Read only what is committed. After a failure, that is what was stored before it."""
        with suppress(StorageFailed):
            await self._commit()
        return await self._reader.read(queue, runs)

    # What an operator does.

    async def operate(self, queue: str, action: base.Action) -> int:
        self._admit()
        count = self._carry_out(queue, action, self._now())
        self._waiters.wake(self.machine.queues[queue], self.machine.now_ns)
        await self._commit()
        return count

    def _carry_out(self, queue: str, action: base.Action, now_ns: int) -> int:
        machine = self.machine
        match action:
            case base.Purge():
                return definitions.purge_queue(machine, queue, now_ns)
            case base.Replay():
                return dead_letters.replay(machine, queue, action.ids, now_ns)
            case base.Discard():
                return dead_letters.discard(machine, queue, action.ids, now_ns)
            case base.Release():
                indexes = list(action.indexes)
                dead_letters.release(machine, queue, action.subscription, indexes, now_ns)
                return len(indexes)

    async def held(self, queue: str, subscription: str, limit: int) -> list[HeldMessage]:
        self._now()
        reader = self.machine.subscription(queue, subscription)
        return [
            HeldMessage(index=index, waits_for=reader.blockers(index))
            for start, stop in cut(reader.held(), limit)
            for index in range(start, stop)
        ]

    async def names(self) -> list[str]:
        self._now()
        return sorted(one.name for one in self.machine.queues.values() if one.source is None)

    async def stats(self, after: str = "", limit: int | None = None) -> KnownStats:
        self._now()
        queues = self.machine.queues
        found: list[QueueStats] = []
        turns = Turns()
        for name in sorted(name for name in queues if name > after):
            queue = queues.get(name)
            if queue is None:
                continue  # deleted in the meantime
            if len(found) == limit:
                break
            found.append(queue_stats(queue, self._now()))
            await turns.after(1 + len(queue.subscriptions))
        return KnownStats(queues=found, missing={})

    async def queue_stats(self, queue: str, only: Sequence[str] | None = None) -> QueueStats:
        now_ns = self._now()
        return queue_stats(self.machine.queue(queue), now_ns, only)

    # Waiting and time.

    async def wait(
        self, queue: str, subscription: str, timeout_seconds: float, beyond: int | None = None
    ) -> int | None:
        now_ns = self._now()
        reader = self.machine.subscription(queue, subscription)
        if beyond is None:
            is_there = await self._waiters.wait(reader, timeout_seconds, now_ns)
        else:
            is_there = await self._waiters.wait_beyond(reader, beyond, timeout_seconds)
        return reader.arrivals if is_there else None

    async def callbacks(self, queue: str | None = None) -> list[CallbackTarget]:
        self._now()
        readers: Iterable[Subscription] = self.machine.subscriptions.values()
        if queue is not None:
            found = self.machine.queues.get(queue)
            readers = () if found is None else found.subscriptions.values()
        return [
            CallbackTarget(
                queue=reader.queue.name,
                subscription=reader.name,
                callback=reader.config.callback,
                paused=reader.config.paused,
                secrets=reader.secrets,
            )
            for reader in readers
            if reader.config.callback is not None
        ]

    async def tick(self) -> None:
        """Do what is due: expiry, leases that ran out, retention."""
        if not self._journal.has_settle_room(_EVENT_BYTES):
            # A full disk may have space again, and there may be no publish to notice it.
            await self._journal.make_room(_EVENT_BYTES)
        turns = Turns()
        for queue in list(self.machine.queues.values()):
            if self._closed:
                return  # in the meantime
            if self.machine.queues.get(queue.name) is not queue:
                continue  # deleted in the meantime
            self._admit()
            now_ns = self._now()
            retention.tick(self.machine, queue, now_ns)
            self._waiters.wake(queue, now_ns)
            await turns.after(1 + len(queue.subscriptions))
        await self._commit()

    def start_ticking(self, every_seconds: float) -> None:
        """Call `tick` regularly until the store is closed or fails."""
        self._ticker.start(self.tick, every_seconds)

    async def close(self) -> None:
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # Shielded, so that it completes even if this caller is cancelled.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._ticker.stop()
        for queue in self.machine.queues.values():
            self._waiters.wake_all(queue)
        await asyncio.sleep(0)  # let the commits run that were put off by a turn
        await self._finish()

    async def _finish(self) -> None:
        """The last step of closing, when nothing is accepted any more."""
        await self._journal.close()


def _hear(done: asyncio.Future[None]) -> None:
    """Retrieve the exception of a commit that nobody awaits, lest asyncio warn of it."""
    if not done.cancelled():
        done.exception()

"""The machine behind the storage contract. `memory` and `wal` differ only in their journal."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Literal, Protocol

from penstock.clock import Clock
from penstock.core import (
    dead_letters,
    definitions,
    delivery,
    publishing,
    retention,
    settling,
)
from penstock.core.events import DeadLettered, Event, Published
from penstock.core.filters import Filter, Match, compile_filter
from penstock.core.limits import NANOSECONDS
from penstock.core.machine import Machine, Place
from penstock.core.message import PLAIN, DeadLetter, Delivery, Message
from penstock.core.publishing import NewBatch, PublishResult
from penstock.core.queue import Queue
from penstock.core.runs import Run, runs_of
from penstock.core.settling import Outcome
from penstock.core.stats import QueueStats, queue_stats
from penstock.core.subscription import Lease, Subscription
from penstock.errors import MessageNotFound, StorageClosed, StorageError
from penstock.storage import base

__all__ = ["EmbeddedStore", "MessageJournal"]

logger = logging.getLogger(__name__)

# How many messages are read at a time where there may be any number of them.
_CHUNK = 1000


class MessageJournal(Protocol):
    """Keeps events, and gives back those that carry messages."""

    @property
    def durability(self) -> base.Durability: ...

    def append(self, event: Event) -> Place:
        """Never blocks."""
        ...

    async def admit(self, size: int) -> None:
        """Returns when there is space for a publish of this many bytes; raises `DiskFull`."""
        ...

    async def commit(self) -> None:
        """Returns when all that was appended has reached the journal's durability."""
        ...

    def load_nowait(self, place: Place) -> Event | None:
        """An event at hand; None when it takes I/O to get it."""
        ...

    async def load(self, place: Place) -> Event: ...

    async def close(self) -> None: ...


class EmbeddedStore:
    """Runs on one event loop. Commands are decided and applied without a pause, then committed."""

    def __init__(self, *, machine: Machine, journal: MessageJournal, clock: Clock) -> None:
        self.machine = machine
        self._journal = journal
        self._clock = clock
        self._waiters: dict[int, deque[asyncio.Future[bool]]] = {}
        self._closed = False
        self._ticker: asyncio.Task[None] | None = None

    @property
    def durability(self) -> base.Durability:
        return self._journal.durability

    def _now(self) -> int:
        if self._closed:
            raise StorageClosed("the store was closed: open it again")
        return self.machine.advance(self._clock.now_ns())

    # Definitions.

    async def define(self, change: base.Change) -> None:
        machine = self.machine
        now_ns = self._now()
        match change:
            case base.CreateQueue():
                definitions.create_queue(machine, change.queue, change.config, now_ns)
            case base.AlterQueue():
                definitions.alter_queue(machine, change.queue, change.changes, now_ns)
            case base.DeleteQueue():
                gone = machine.queue(change.queue)
                definitions.delete_queue(machine, change.queue, now_ns)
                self._wake_all(gone)
            case base.PurgeQueue():
                definitions.purge_queue(machine, change.queue, now_ns)
            case base.CreateSubscription():
                await self._create_subscription(change)
            case base.AlterSubscription():
                definitions.alter_subscription(
                    machine, change.queue, change.subscription, change.changes, now_ns
                )
            case base.DeleteSubscription():
                definitions.delete_subscription(
                    machine, change.queue, change.subscription, now_ns
                )
            case base.Seek():
                await self._seek(change)
        if change.queue in machine.queues:
            self._wake(machine.queues[change.queue])
        await self._journal.commit()

    async def _create_subscription(self, change: base.CreateSubscription) -> None:
        queue = self.machine.queue(change.queue)
        definitions.check_subscription(queue, change.subscription, change.config)
        start, matches = await self._backfill(queue, change.config.filter, change.start)
        definitions.create_subscription(
            self.machine,
            change.queue,
            change.subscription,
            change.config,
            start,
            matches,
            self._now(),
        )

    async def _seek(self, change: base.Seek) -> None:
        subscription = self.machine.subscription(change.queue, change.subscription)
        start, matches = await self._backfill(
            subscription.queue, subscription.config.filter, change.start
        )
        definitions.seek(
            self.machine, change.queue, change.subscription, start, matches, self._now()
        )

    async def _backfill(
        self, queue: Queue, filter_text: str | None, position: definitions.Start
    ) -> tuple[int, list[Run]]:
        """Put old messages through a filter. There is no pause between the last look and return."""
        start = definitions.resolve_start(queue, position)
        if filter_text is None:
            return start, []
        compiled = compile_filter(filter_text)
        found: list[int] = []
        at = start
        while True:
            missing = definitions.backfill_range(queue, filter_text, at)
            if missing is None:
                return start, runs_of(found)
            stop = min(missing[1], missing[0] + _CHUNK)
            messages = self._read_nowait(queue, [(missing[0], stop)])
            if messages is None:
                messages = await self._read(queue, [(missing[0], stop)])
            found += [m.index for m in messages if _matches(compiled, queue, m)]
            at = stop

    # Messages.

    async def publish(self, queue: str, batch: NewBatch) -> PublishResult:
        await self._journal.admit(batch.size)
        result = publishing.publish(self.machine, queue, batch, self._now())
        if self._waiters:
            self._wake(self.machine.queues[queue], len(result))
        await self._journal.commit()
        result.durability = self._journal.durability
        return result

    async def receive(
        self, queue: str, subscription: str, limit: int, lease_seconds: float | None = None
    ) -> list[Delivery]:
        handout = delivery.receive(
            self.machine, queue, subscription, limit, lease_seconds, self._now()
        )
        return await self._hand_out(handout)

    async def poll(self, queue: str, subscription: str, start: int, count: int) -> list[Delivery]:
        handout = delivery.poll(self.machine, queue, subscription, start, count, self._now())
        return await self._hand_out(handout)

    async def ask_again(self, queue: str, subscription: str, index: int) -> Delivery:
        handout = delivery.ask_again(self.machine, queue, subscription, index, self._now())
        deliveries = await self._hand_out(handout)
        if not deliveries:
            raise MessageNotFound(f"message {index} of queue {queue!r} is gone")
        return deliveries[0]

    async def _hand_out(self, handout: delivery.Handout | None) -> list[Delivery]:
        if handout is None:
            return []
        subscription, runs, epoch, deadline_ns = handout
        first = Lease(epoch, deadline_ns, 1)
        leases = subscription.leases
        counts = {
            index: lease.deliveries
            for start, stop in runs
            for index in range(start, stop)
            if (lease := leases.get(index, first)) is not None and lease.deliveries != 1
        }
        await self._journal.commit()
        messages = self._read_nowait(subscription.queue, runs)
        if messages is None:
            messages = await self._read(subscription.queue, runs)
        return [
            Delivery(
                message=message,
                subscription_id=subscription.id,
                epoch=epoch,
                deliveries=counts.get(message.index, 1),
                deadline_ns=deadline_ns,
            )
            for message in messages
        ]

    async def settle(
        self, queue: str, subscription: str, settlements: Sequence[base.Settlement]
    ) -> list[list[Outcome]]:
        machine = self.machine
        now_ns = self._now()
        outcomes: list[list[Outcome]] = []
        for settlement in settlements:
            match settlement:
                case base.Ack(targets=targets):
                    outcomes.append(settling.ack(machine, queue, subscription, targets, now_ns))
                case base.Nack(targets=targets, delay_seconds=delay, reason=reason):
                    outcomes.append(
                        settling.nack(machine, queue, subscription, targets, delay, reason, now_ns)
                    )
                case base.Extend(targets=targets, seconds=seconds):
                    outcomes.append(
                        settling.extend(machine, queue, subscription, targets, seconds, now_ns)
                    )
                case base.AckUpTo(index=index):
                    count = settling.ack_up_to(machine, queue, subscription, index, now_ns)
                    outcomes.append([Outcome.DONE] * count)
        if self._waiters:
            self._wake(machine.queues[queue])
        await self._journal.commit()
        return outcomes

    # Reading.

    async def read(self, queue: str, start: int, limit: int) -> list[Message]:
        self._now()
        found = self.machine.queue(queue)
        start = max(start, found.first)
        return await self._read(found, [(start, min(start + limit, found.next))])

    async def find(self, queue: str, ids: Sequence[str]) -> list[Message | None]:
        self._now()
        found = self.machine.queue(queue)
        indexes = [found.index_of(id) for id in ids]
        messages = await self._read(found, runs_of(i for i in indexes if i is not None))
        by_index = {message.index: message for message in messages}
        return [None if index is None else by_index.get(index) for index in indexes]

    def _read_nowait(self, queue: Queue, runs: list[Run]) -> list[Message] | None:
        """None when a part of it takes I/O. Skips what is gone."""
        messages: list[Message] = []
        for run in runs:
            for place, start, stop, created_ns in _places(queue, run):
                event = self._journal.load_nowait(place)
                if event is None:
                    return None
                if isinstance(event, Published):
                    _add_messages(messages, queue, event, start, stop, created_ns)
                elif isinstance(event, DeadLettered):
                    letter = self._letter_nowait(queue, event)
                    if letter is None:
                        return None
                    messages += letter
        return messages

    async def _read(self, queue: Queue, runs: list[Run]) -> list[Message]:
        messages: list[Message] = []
        for run in runs:
            for place, start, stop, created_ns in _places(queue, run):
                event = self._journal.load_nowait(place) or await self._journal.load(place)
                if isinstance(event, Published):
                    _add_messages(messages, queue, event, start, stop, created_ns)
                elif isinstance(event, DeadLettered) and queue.source is not None:
                    await self._read(queue.source, [(event.index, event.index + 1)])
                    messages += self._letter_nowait(queue, event) or []
        return messages

    def _letter_nowait(self, letters: Queue, event: DeadLettered) -> list[Message] | None:
        """A dead letter is the message that failed, with the reason; empty if that is gone."""
        source = letters.source
        if source is None:
            return []
        origins = self._read_nowait(source, [(event.index, event.index + 1)])
        if origins is None:
            return None
        return [
            Message(
                queue=letters.name,
                index=event.letter_index,
                created_at_ns=origin.created_at_ns,
                salt=origin.salt,
                body=origin.body,
                envelope=origin.envelope,
                dead_letter=DeadLetter(
                    queue=source.name,
                    subscription=event.subscription,
                    index=event.index,
                    deliveries=event.deliveries,
                    reason=event.reason,
                    failed_at_ns=event.at_ns,
                ),
            )
            for origin in origins
        ]

    # Dead letters and dependencies.

    async def dead_letters(self, queue: str, start: int, limit: int) -> list[Message]:
        self._now()
        source = self.machine.queue(queue)
        indexes = [i for i in dead_letters.letters_of(source, None) if i >= start][:limit]
        if source.dead_letters is None:
            return []
        return await self._read(source.dead_letters, runs_of(indexes))

    async def redrive(
        self, queue: str, action: Literal["replay", "discard"], ids: Sequence[str] | None
    ) -> int:
        command = dead_letters.replay if action == "replay" else dead_letters.discard
        count = command(self.machine, queue, ids, self._now())
        self._wake(self.machine.queues[queue])
        await self._journal.commit()
        return count

    async def release(self, queue: str, subscription: str, indexes: Sequence[int]) -> None:
        dead_letters.release(self.machine, queue, subscription, list(indexes), self._now())
        self._wake(self.machine.queues[queue])
        await self._journal.commit()

    async def held(self, queue: str, subscription: str, limit: int) -> list[int]:
        self._now()
        found: list[int] = []
        for start, stop in self.machine.subscription(queue, subscription).held():
            found += range(start, min(stop, start + limit - len(found)))
            if len(found) >= limit:
                break
        return found

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        now_ns = self._now()
        if queue is not None:
            return [queue_stats(self.machine.queue(queue), now_ns)]
        return [queue_stats(q, now_ns) for _, q in sorted(self.machine.queues.items())]

    # Waiting and time.

    async def wait(self, queue: str, subscription: str, timeout_seconds: float) -> bool:
        now_ns = self._now()
        reader = self.machine.subscription(queue, subscription)
        reader.mature(now_ns)
        if _is_deliverable(reader):
            return True
        due_ns = reader.next_due_ns()
        until_due = None if due_ns is None else max(0.0, (due_ns - now_ns) / NANOSECONDS)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line = self._waiters.setdefault(reader.id, deque())
        line.append(waiter)
        seconds = timeout_seconds if until_due is None else min(timeout_seconds, until_due)
        try:
            return await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            return until_due is not None and until_due <= timeout_seconds
        finally:
            if waiter in line:
                line.remove(waiter)
            if not line:
                self._waiters.pop(reader.id, None)

    def _wake(self, queue: Queue, count: int | None = None) -> None:
        """Wake those who wait for a message of a queue; no more of them than there are messages."""
        if not self._waiters:
            return
        for reader in queue.subscriptions.values():
            line = self._waiters.get(reader.id)
            if line and _is_deliverable(reader):
                for _ in range(len(line) if count is None else min(count, len(line))):
                    waiter = line.popleft()
                    if not waiter.done():
                        waiter.set_result(True)

    def _wake_all(self, queue: Queue) -> None:
        for reader in queue.subscriptions.values():
            for waiter in self._waiters.pop(reader.id, ()):
                if not waiter.done():
                    waiter.set_result(True)

    async def tick(self) -> None:
        """Do what is due: expiries, leases that ran out, retention."""
        retention.tick(self.machine, self._now())
        for queue in self.machine.queues.values():
            self._wake(queue)
        await self._journal.commit()

    def start_ticking(self, every_seconds: float) -> None:
        """Call `tick` regularly until the store is closed or fails."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick_forever(every_seconds))

    async def _tick_forever(self, every_seconds: float) -> None:
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await self.tick()
            except StorageError as exc:
                # Whoever uses the store is told by its own call; time goes on for the others.
                logger.error("the regular work of the store failed: %s", exc)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        for queue in self.machine.queues.values():
            self._wake_all(queue)
        await self._finish()

    async def _finish(self) -> None:
        """The last thing: nothing is accepted any more."""
        await self._journal.close()


def _is_deliverable(reader: Subscription) -> bool:
    return (
        not reader.config.paused
        and len(reader.leases) < reader.config.max_in_flight
        and bool(reader.ready_runs(1))
    )


def _places(queue: Queue, run: Run) -> list[tuple[Place, int, int, int]]:
    """Where the messages of a run are: place, and the part of the run that it holds."""
    start, stop = run
    if start < queue.first:
        old = [index for index in range(start, min(stop, queue.first)) if queue.holds(index)]
        places = [
            (Place(batch.locator, batch.length), index, index + 1, batch.created_ns)
            for index in old
            for batch in [queue.stragglers[index]]
        ]
        return places + (_places(queue, (queue.first, stop)) if stop > queue.first else [])
    if start >= stop:
        return []
    batches = queue.timeline.batches(start, stop)
    ends = [batch.first for batch in batches[1:]] + [stop]
    return [
        (
            Place(batch.locator, batch.length),
            max(start, batch.first),
            min(stop, end),
            batch.created_ns,
        )
        for batch, end in zip(batches, ends, strict=True)
    ]


def _add_messages(
    messages: list[Message],
    queue: Queue,
    event: Published,
    start: int,
    stop: int,
    created_ns: int,
) -> None:
    first, name, salt = event.first, queue.name, queue.salt
    bodies, envelopes = event.bodies, event.envelopes
    for index in range(start, stop):
        messages.append(
            Message(
                queue=name,
                index=index,
                created_at_ns=created_ns,
                salt=salt,
                body=bodies[index - first],
                envelope=PLAIN if envelopes is None else envelopes[index - first],
            )
        )


def _matches(compiled: Filter, queue: Queue, message: Message) -> bool:
    subject = publishing.make_subject(
        queue, message.index, message.created_at_ns, message.body, message.envelope
    )
    return compiled.matches(subject) is Match.YES

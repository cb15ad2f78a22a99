"""Changes of queues and subscriptions, for stores that have the machine in their own process.

A change takes effect as one command. But a reader with a filter needs to know which old messages
match it, and finding out takes awaits, during which other commands go on. So nothing is changed
before the last await, and what was looked up before it is looked up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.core import definitions
from penstock.core.filters import Filter, Match, compile_filter
from penstock.core.machine import Machine
from penstock.core.message import Message
from penstock.core.publishing import make_subject
from penstock.core.queue import Queue
from penstock.core.runs import Run, Runs
from penstock.errors import QueueNotFound, SubscriptionNotFound
from penstock.storage import base
from penstock.storage.reader import MessageReader
from penstock.storage.waiters import Waiters

__all__ = ["Defining"]

# How many messages to read at a time: there may be any number of them.
_CHUNK = 1000


class Defining:
    """Applies changes, and wakes the waiters that they affect."""

    def __init__(
        self,
        *,
        machine: Machine,
        reader: MessageReader,
        waiters: Waiters,
        now_ns: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._reader = reader
        self._waiters = waiters
        self._now_ns = now_ns  # raises if the store was closed

    async def define(self, change: base.Change) -> None:
        machine = self._machine
        now_ns = self._now_ns()
        match change:
            case base.CreateQueue():
                definitions.create_queue(
                    machine, change.queue, change.config, now_ns, change.default
                )
            case base.AlterQueue():
                definitions.alter_queue(machine, change.queue, change.changes, now_ns)
            case base.DeleteQueue():
                gone = machine.queue(change.queue)
                definitions.delete_queue(machine, change.queue, now_ns)
                self._waiters.wake_all(gone)
            case base.CreateSubscription():
                await self._create_subscription(change)
            case base.AlterSubscription():
                definitions.alter_subscription(
                    machine,
                    change.queue,
                    change.subscription,
                    change.changes,
                    now_ns,
                    change.secret,
                )
            case base.RotateSecret():
                definitions.rotate_secret(
                    machine, change.queue, change.subscription, change.secret, now_ns
                )
            case base.DeleteSubscription():
                reader = machine.subscription(change.queue, change.subscription)
                definitions.delete_subscription(machine, change.queue, change.subscription, now_ns)
                self._waiters.wake_reader(reader)
            case base.Seek():
                await self._seek(change)
        if change.queue in machine.queues:
            self._waiters.wake(machine.queues[change.queue], now_ns)

    async def _create_subscription(self, change: base.CreateSubscription) -> None:
        queue = self._machine.queue(change.queue)
        definitions.check_subscription(queue, change.subscription, change.config)
        start, matches = await self._backfill(queue, change.config.filter, change.start)
        if self._machine.queue(change.queue) is not queue:
            raise QueueNotFound(
                f"queue {change.queue!r} was deleted and made anew in the meantime: try again"
            )
        definitions.create_subscription(
            self._machine,
            change.queue,
            change.subscription,
            change.config,
            start,
            matches,
            self._now_ns(),
            change.secret,
        )

    async def _seek(self, change: base.Seek) -> None:
        subscription = self._machine.subscription(change.queue, change.subscription)
        start, matches = await self._backfill(
            subscription.queue, subscription.config.filter, change.start
        )
        if self._machine.subscription(change.queue, change.subscription) is not subscription:
            raise SubscriptionNotFound(
                f"subscription {change.subscription!r} of queue {change.queue!r} was deleted and "
                "made anew in the meantime: try again"
            )
        definitions.seek(
            self._machine, change.queue, change.subscription, start, matches, self._now_ns()
        )

    async def _backfill(
        self, queue: Queue, filter_text: str | None, position: definitions.Start
    ) -> tuple[int, list[Run]]:
        """Put old messages through a filter, letting others run: there may be any number of them.

        There is no await between the last look at the queue and the return. The caller must check
        again whether the queue still exists.
        """
        start = definitions.resolve_start(queue, position)
        if filter_text is None:
            return start, []
        compiled = compile_filter(filter_text)
        matches = Runs()
        at, known = start, queue.next
        chunks, allowance = 0, 1
        while (missing := definitions.backfill_range(queue, filter_text, at)) is not None:
            stop = min(missing[1], missing[0] + _CHUNK)
            messages = self._reader.read_nowait(queue, [(missing[0], stop)])
            if messages is None:
                messages = await self._reader.read(queue, [(missing[0], stop)])
            for message in messages:
                if _matches(compiled, queue, message):
                    matches.add(message.index, message.index + 1)
            at = stop
            chunks += 1
            if chunks >= allowance:
                chunks = 0
                await asyncio.sleep(0)
                self._now_ns()  # raises if the store was closed
                if at >= known:
                    # Publishers may add a chunk in every pause, so pause less and less often.
                    allowance *= 2
        return start, list(matches)


def _matches(compiled: Filter, queue: Queue, message: Message) -> bool:
    subject = make_subject(
        queue, message.index, message.created_at_ns, message.body, message.envelope
    )
    return compiled.matches(subject) is Match.YES

"""Publishes that arrive together are stored together.

All batches that arrive in one turn of the event loop share one event in the log: one record, one
index entry, one commit. Each caller still gets its own answer, or its own error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from penstock.core.limits import MAX_BATCH_BYTES, MAX_BATCH_MESSAGES
from penstock.core.machine import Machine
from penstock.core.publishing import NewBatch, PublishResult, is_repeated, merge, publish
from penstock.core.queue import Queue
from penstock.errors import InvalidArgument
from penstock.storage.answers import Answer, Done, reject
from penstock.storage.gathering import Gathering
from penstock.storage.journal import MessageJournal

__all__ = ["GatheredPublishes"]


class _Group:
    """Calls for one queue that fit into one batch, in the order of their arrival."""

    __slots__ = ("answers", "batches", "count", "keys", "queue", "size")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.batches: list[NewBatch] = []
        self.answers: list[asyncio.Future[PublishResult]] = []
        self.keys: set[str] = set()
        self.count = 0
        self.size = 0


class GatheredPublishes(Gathering):
    """Collects calls and publishes them at the end of the loop's turn."""

    def __init__(
        self,
        *,
        machine: Machine,
        journal: MessageJournal,
        call_when_committed: Callable[[Done], None],
        now_ns: Callable[[], int],
        on_published: Callable[[str, int], bool],
    ) -> None:
        super().__init__(
            machine=machine,
            journal=journal,
            call_when_committed=call_when_committed,
            now_ns=now_ns,
        )
        self._on_published = on_published  # returns whether a waiter was woken for it
        self._is_awaited = False
        self._groups: list[_Group] = []
        self._open: dict[str, _Group] = {}  # the last group of each queue

    def add(
        self, queue: str, batch: NewBatch, *, overhead: int = 0
    ) -> asyncio.Future[PublishResult]:
        """``overhead`` is what it takes in the log besides its own bytes."""
        # An unhashable name fails here, and does not affect the others.
        group = self._open.get(queue)
        count, size = len(batch.bodies), batch.size
        if (
            group is None
            or group.count + count > MAX_BATCH_MESSAGES
            or group.size + size > MAX_BATCH_BYTES
            # The same request twice at once: the second must find the first one's answer.
            or (batch.keys and not group.keys.isdisjoint(part.key for part in batch.keys))
        ):
            group = self._open[queue] = _Group(queue)
            self._groups.append(group)
        answer: asyncio.Future[PublishResult] = self._expect(size + overhead)
        if batch.keys:
            group.keys.update(part.key for part in batch.keys)
        group.batches.append(batch)
        group.answers.append(answer)
        group.count += count
        group.size += size
        return answer

    def _decide(self) -> None:
        groups, self._groups = self._groups, []
        self._open.clear()
        answers: list[Answer[PublishResult]] = []
        for group in groups:
            answers += self._publish(group)
        is_awaited, self._is_awaited = self._is_awaited, False
        if answers:
            self._answer(answers, is_awaited=is_awaited)

    def _publish(self, group: _Group) -> list[Answer[PublishResult]]:
        """The answers for those that were accepted; the others are rejected here."""
        batches, answers = group.batches, group.answers
        try:
            now_ns = self._now_ns()
            queue = self._machine.queue(group.queue)
            if len(batches) > 1 and _may_merge(queue, group, now_ns):
                # If one of them would expire before it is due, each is judged by itself.
                with suppress(InvalidArgument):
                    result = self._accept(group.queue, merge(batches), now_ns)
                    return list(zip(answers, result.split(batches), strict=True))
        except Exception as exc:
            for answer in answers:
                reject(answer, exc)
            return []
        accepted = []
        for batch, answer in zip(batches, answers, strict=True):
            try:
                accepted.append((answer, self._accept(group.queue, batch, now_ns)))
            except Exception as exc:
                reject(answer, exc)
        return accepted

    def _accept(self, queue: str, batch: NewBatch, now_ns: int) -> PublishResult:
        result = publish(self._machine, queue, batch, now_ns)
        result.durability = self._journal.durability
        self._is_awaited |= self._on_published(queue, len(result))
        return result


def _may_merge(queue: Queue, group: _Group, now_ns: int) -> bool:
    """False if a call may be refused or answered by itself: for a bound, or for a known key."""
    config = queue.config
    if config.max_messages is not None or config.max_bytes is not None:
        return False
    return not (group.keys and any(is_repeated(queue, b, now_ns) for b in group.batches))

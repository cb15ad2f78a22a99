"""Publishes that arrive together are stored together.

Every batch that comes in during one turn of the event loop joins one event of the log: one record,
one index entry, one commit. Each caller still gets its own answer, and its own refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from typing import NamedTuple, Protocol

from penstock.core.limits import MAX_BATCH_BYTES, MAX_BATCH_MESSAGES
from penstock.core.machine import Machine
from penstock.core.publishing import NewBatch, PublishResult, merge, publish
from penstock.errors import PenstockError

__all__ = ["Committing", "Gathering"]


class Committing(Protocol):
    def submit(self) -> asyncio.Future[None] | None:
        """Done when all that was appended is committed; None when it is so already."""
        ...


class _Call(NamedTuple):
    queue: str
    batch: NewBatch
    answer: asyncio.Future[PublishResult]


class Gathering:
    """Collects calls and publishes them at the end of the loop's turn."""

    def __init__(
        self,
        *,
        machine: Machine,
        journal: Committing,
        now_ns: Callable[[], int],
        on_published: Callable[[str, int], None],
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._now_ns = now_ns
        self._on_published = on_published
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: list[_Call] = []
        self.size = 0  # bytes that have gathered

    def add(self, queue: str, batch: NewBatch) -> asyncio.Future[PublishResult]:
        hash(queue)  # one that cannot be a name must fail here, not among the others
        if self._loop is None:
            # Asked once: it costs a system call.
            self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[PublishResult] = self._loop.create_future()
        if not self._calls:
            self._loop.call_soon(self.flush)
        self._calls.append(_Call(queue, batch, answer))
        self.size += batch.size
        return answer

    def flush(self) -> None:
        """Publish what has gathered. Every caller is answered, whatever happens to the others."""
        calls, self._calls = self._calls, []
        self.size = 0
        answered: list[tuple[_Call, PublishResult]] = []
        for group in _groups(calls):
            answered += self._publish(group)
        if not answered:
            return
        try:
            committed = self._journal.submit()
        except PenstockError as exc:
            _refuse(answered, exc)
            return
        if committed is None:
            _answer(answered)
        else:
            committed.add_done_callback(lambda done: _settle(answered, done))

    def _publish(self, calls: list[_Call]) -> list[tuple[_Call, PublishResult]]:
        """Those that were accepted; the others have been told."""
        try:
            now_ns = self._now_ns()
            queue = self._machine.queue(calls[0].queue)
            config = queue.config
            if len(calls) > 1 and config.max_messages is None and config.max_bytes is None:
                batch = merge([call.batch for call in calls])
                result = publish(self._machine, queue.name, batch, now_ns)
                self._on_published(queue.name, len(result))
                return _shares(calls, result)
        except Exception as exc:
            for call in calls:
                _reject(call.answer, exc)
            return []
        # A bound is each caller's own: one may still fit where another does not.
        accepted = []
        for call in calls:
            try:
                result = publish(self._machine, call.queue, call.batch, now_ns)
            except Exception as exc:
                _reject(call.answer, exc)
            else:
                self._on_published(call.queue, len(result))
                accepted.append((call, result))
        return accepted


def _groups(calls: list[_Call]) -> list[list[_Call]]:
    """Calls for one queue that fit into a batch, in the order they came."""
    if len(calls) == 1:
        return [calls]
    groups: list[list[_Call]] = []
    open_groups: dict[str, tuple[list[_Call], int, int]] = {}
    for call in calls:
        count, size = len(call.batch.bodies), call.batch.size
        group, messages, total = open_groups.get(call.queue, ([], 0, 0))
        if not group or messages + count > MAX_BATCH_MESSAGES or total + size > MAX_BATCH_BYTES:
            group, messages, total = [], 0, 0
            groups.append(group)
        group.append(call)
        open_groups[call.queue] = (group, messages + count, total + size)
    return groups


def _shares(calls: list[_Call], result: PublishResult) -> list[tuple[_Call, PublishResult]]:
    shares = []
    start = 0
    for call in calls:
        stop = start + len(call.batch.bodies)
        shares.append((call, result.part(start, stop)))
        start = stop
    return shares


def _settle(answered: list[tuple[_Call, PublishResult]], done: asyncio.Future[None]) -> None:
    error = done.exception()
    if error is None:
        _answer(answered)
    else:
        _refuse(answered, error)


def _answer(answered: list[tuple[_Call, PublishResult]]) -> None:
    for call, result in answered:
        if not call.answer.done():
            call.answer.set_result(result)


def _refuse(answered: list[tuple[_Call, PublishResult]], error: BaseException) -> None:
    for call, _ in answered:
        _reject(call.answer, error)


def _reject(answer: asyncio.Future[PublishResult], error: BaseException) -> None:
    """Each caller raises an error of its own: one object would gather everybody's traceback."""
    if not answer.done():
        own = copy(error)
        own.__cause__ = error.__cause__
        answer.set_exception(own)

"""Those who wait for messages: long polls cost nothing until there is something for them."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from penstock.core.limits import NANOSECONDS
from penstock.core.queue import Queue
from penstock.core.subscription import Subscription

__all__ = ["Waiters"]

# Something due now may stay so: a clock that was set back stands still until it has caught up.
_SHORTEST_WAIT_SECONDS = 0.01


class _Line:
    """Who waits on one subscription, and until when they sleep if nobody wakes them."""

    __slots__ = ("due_ns", "reader", "waiters")

    def __init__(self, reader: Subscription) -> None:
        self.reader = reader
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.due_ns: int | None = None

    def wake(self, count: int | None = None) -> None:
        """The first ``count`` of those who still wait, or all."""
        while self.waiters and (count is None or count > 0):
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                if count is not None:
                    count -= 1


class _Watcher(NamedTuple):
    """Who waits for more than it has seen, whether or not there is something already."""

    reader: Subscription
    seen: int
    waiter: asyncio.Future[None]

    def wake(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)


class Waiters:
    """Lines of futures, one line a subscription. A subscription nobody waits on has none."""

    def __init__(self) -> None:
        self._lines: dict[int, dict[int, _Line]] = {}  # by the ids of queue and subscription
        self._watchers: dict[int, list[_Watcher]] = {}  # by the id of the queue

    async def wait(self, reader: Subscription, timeout_seconds: float, now_ns: int) -> bool:
        """Until something may be deliverable; False when the time was up first."""
        reader.mature(now_ns)
        if is_deliverable(reader):
            return True
        seconds = timeout_seconds
        due_ns = reader.next_due_ns()
        if due_ns is not None:
            until_due = (due_ns - now_ns) / NANOSECONDS
            seconds = min(seconds, max(_SHORTEST_WAIT_SECONDS, until_due))
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._line(reader)
        line.due_ns = due_ns
        line.waiters.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            # Who was woken just as the time was up must come: no other was woken in its place.
            return _is_woken(waiter) or seconds < timeout_seconds
        except asyncio.CancelledError:
            if _is_woken(waiter):
                line.wake(1)  # it was woken, but will not come: another one may
            raise
        finally:
            self._leave(line, waiter)
        return True

    async def wait_news(self, reader: Subscription, seen: int, timeout_seconds: float) -> None:
        """Until `Subscription.news` is another number than ``seen``, or the time is up."""
        if reader.news == seen:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            watcher = _Watcher(reader, seen, waiter)
            watchers = self._watchers.setdefault(reader.queue.id, [])
            watchers.append(watcher)
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout_seconds):
                        await waiter
            finally:
                watchers.remove(watcher)
                if not watchers:
                    self._watchers.pop(reader.queue.id, None)

    def _line(self, reader: Subscription) -> _Line:
        lines = self._lines.setdefault(reader.queue.id, {})
        line = lines.get(reader.id)
        if line is None:
            line = lines[reader.id] = _Line(reader)
        return line

    def _leave(self, line: _Line, waiter: asyncio.Future[None]) -> None:
        if waiter in line.waiters:
            line.waiters.remove(waiter)
        if not line.waiters:
            self._close(line)

    def _close(self, line: _Line) -> None:
        reader = line.reader
        lines = self._lines.get(reader.queue.id, {})
        if lines.get(reader.id) is line:
            del lines[reader.id]
            if not lines:
                del self._lines[reader.queue.id]

    def wake(self, queue: Queue, now_ns: int, *, since: int = 0, count: int | None = None) -> bool:
        """Wake who waits for a message of the queue, no more of them than there are messages.

        Only messages from the index ``since`` on are news. It costs a glance at each subscription
        that somebody waits on, and more only where there is something unsettled among the news.
        Returns whether somebody will come for a message, in the loop's next turn.
        """
        if self._watchers:
            for watcher in self._watchers.get(queue.id, ()):
                if watcher.reader.news != watcher.seen:
                    watcher.wake()
        if not self._lines:
            return False
        has_woken = False
        for line in self._lines.get(queue.id, {}).values():
            reader = line.reader
            if reader.feed.matched.stop > since and reader.unsettled:
                has_woken |= _wake_line(line, now_ns, count)
        if queue.dead_letters is not None:
            has_woken |= self.wake(queue.dead_letters, now_ns)
        return has_woken

    def wake_all(self, queue: Queue) -> None:
        """Whether or not there is anything: the queue or the store is going away."""
        for line in self._lines.pop(queue.id, {}).values():
            line.wake()
        for watcher in self._watchers.get(queue.id, ()):
            watcher.wake()
        if queue.dead_letters is not None:
            self.wake_all(queue.dead_letters)

    def wake_reader(self, reader: Subscription) -> None:
        """All who wait on a subscription, because it is going away."""
        line = self._lines.get(reader.queue.id, {}).get(reader.id)
        if line is not None:
            self._close(line)
            line.wake()
        for watcher in self._watchers.get(reader.queue.id, ()):
            if watcher.reader is reader:
                watcher.wake()


def _is_woken(waiter: asyncio.Future[None]) -> bool:
    return waiter.done() and not waiter.cancelled()


def _wake_line(line: _Line, now_ns: int, count: int | None) -> bool:
    reader = line.reader
    reader.mature(now_ns)
    if is_deliverable(reader):
        line.wake(count)
        return True
    due_ns = reader.next_due_ns()
    if due_ns is not None and (line.due_ns is None or due_ns < line.due_ns):
        # Something will be ready earlier than they know: they look, and sleep again.
        line.wake()
    return False


def is_deliverable(reader: Subscription) -> bool:
    return (
        not reader.config.paused
        and len(reader.leases) < reader.config.max_in_flight
        and bool(reader.ready_runs(1))
    )

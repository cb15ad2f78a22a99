"""Those who wait for messages: long polls cost nothing until there is something for them."""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.core.limits import NANOSECONDS
from penstock.core.queue import Queue
from penstock.core.subscription import Subscription

__all__ = ["Waiters"]


class _Line:
    """Who waits on one subscription, and until when they sleep if nobody wakes them."""

    __slots__ = ("due_ns", "waiters")

    def __init__(self) -> None:
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


class Waiters:
    """Lines of futures, one line a subscription."""

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}

    async def wait(self, reader: Subscription, timeout_seconds: float, now_ns: int) -> bool:
        """Until something may be deliverable; False when the time was up first."""
        reader.mature(now_ns)
        if is_deliverable(reader):
            return True
        seconds = timeout_seconds
        due_ns = reader.next_due_ns()
        if due_ns is not None:
            seconds = min(seconds, max(0.0, (due_ns - now_ns) / NANOSECONDS))
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(reader.id, _Line())
        line.due_ns = due_ns
        line.waiters.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return seconds < timeout_seconds
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                line.wake(1)  # it was woken, but will not come: another one may
            raise
        finally:
            if waiter in line.waiters:
                line.waiters.remove(waiter)
            if not line.waiters and self._lines.get(reader.id) is line:
                del self._lines[reader.id]
        return True

    def wake(self, queue: Queue, now_ns: int, count: int | None = None) -> None:
        """Wake who waits for a message of the queue, no more of them than there are messages."""
        if not self._lines:
            return
        for reader in queue.subscriptions.values():
            line = self._lines.get(reader.id)
            if line is not None:
                self._wake_line(line, reader, now_ns, count)
        if queue.dead_letters is not None:
            self.wake(queue.dead_letters, now_ns)

    def _wake_line(self, line: _Line, reader: Subscription, now_ns: int, count: int | None) -> None:
        reader.mature(now_ns)
        if is_deliverable(reader):
            line.wake(count)
            return
        due_ns = reader.next_due_ns()
        if due_ns is not None and (line.due_ns is None or due_ns < line.due_ns):
            # Something will be ready earlier than they know: they look, and sleep again.
            line.wake()

    def wake_all(self, queue: Queue) -> None:
        """Whether or not there is anything: the queue or the store is going away."""
        for reader in queue.subscriptions.values():
            self.wake_reader(reader)
        if queue.dead_letters is not None:
            self.wake_all(queue.dead_letters)

    def wake_reader(self, reader: Subscription) -> None:
        """All who wait on a subscription, because it is going away."""
        line = self._lines.pop(reader.id, None)
        if line is not None:
            line.wake()


def is_deliverable(reader: Subscription) -> bool:
    return (
        not reader.config.paused
        and len(reader.leases) < reader.config.max_in_flight
        and bool(reader.ready_runs(1))
    )

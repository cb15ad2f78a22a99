"""Those who wait for messages: long polls cost nothing until there is something for them."""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.core.limits import NANOSECONDS
from penstock.core.queue import Queue
from penstock.core.subscription import Subscription

__all__ = ["Waiters"]


class Waiters:
    """Lines of futures, one line a subscription."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[asyncio.Future[None]]] = {}

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
        line = self._lines.setdefault(reader.id, deque())
        line.append(waiter)
        try:
            await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            return seconds < timeout_seconds
        finally:
            if waiter in line:
                line.remove(waiter)
            if not line:
                self._lines.pop(reader.id, None)
        return True

    def wake(self, queue: Queue, count: int | None = None) -> None:
        """Wake who waits for a message of the queue, no more of them than there are messages."""
        if not self._lines:
            return
        for reader in queue.subscriptions.values():
            line = self._lines.get(reader.id)
            if line and is_deliverable(reader):
                for _ in range(len(line) if count is None else min(count, len(line))):
                    _wake(line.popleft())

    def wake_all(self, queue: Queue) -> None:
        """Whether or not there is anything: the queue or the store is going away."""
        for reader in queue.subscriptions.values():
            for waiter in self._lines.pop(reader.id, ()):
                _wake(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def is_deliverable(reader: Subscription) -> bool:
    return (
        not reader.config.paused
        and len(reader.leases) < reader.config.max_in_flight
        and bool(reader.ready_runs(1))
    )

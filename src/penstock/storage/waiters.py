"""Waiters for messages: a long poll costs nothing until there is something for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.feed import Feed
from penstock.core.limits import NANOSECONDS
from penstock.core.queue import Queue
from penstock.core.subscription import Subscription

__all__ = ["Waiters"]

# What is due may stay due: if the clock was set back, time stands still until it catches up.
_SHORTEST_WAIT_SECONDS = 0.01

_NOBODY: dict[int, _Line] = {}


# True if it was woken, False if its time was up.
_Waiter = asyncio.Future[bool]


class _Watcher(NamedTuple):
    """Waits for more than it knows of, whether or not something is deliverable already."""

    arrivals: int
    waiter: _Waiter


class _Line:
    """The waiters of one subscription, and until when they sleep if nobody wakes them."""

    __slots__ = ("due_ns", "reader", "waiters", "watchers")

    def __init__(self, reader: Subscription) -> None:
        self.reader = reader
        self.waiters: deque[_Waiter] = deque()
        self.watchers: list[_Watcher] = []
        self.due_ns: int | None = None

    def wake(self, count: int | None = None) -> None:
        """Wake the first ``count`` of those who still wait, or all."""
        while self.waiters and (count is None or count > 0):
            if _end(self.waiters.popleft(), True) and count is not None:
                count -= 1

    def wake_all(self) -> None:
        """Wake everybody, whether or not there is anything for them."""
        self.wake()
        for watcher in self.watchers:
            _end(watcher.waiter, True)

    def look(self, now_ns: int, count: int | None = None) -> bool:
        """Wake up to ``count`` waiters if something is deliverable. Returns whether it is."""
        reader = self.reader
        if self.watchers:
            reader.mature(now_ns)
        for watcher in self.watchers:
            if watcher.arrivals != reader.arrivals:
                _end(watcher.waiter, True)
        if not self.waiters or not reader.unsettled:
            return False
        reader.mature(now_ns)
        if is_deliverable(reader):
            self.wake(count)
            return True
        due_ns = reader.next_due_ns()
        if due_ns is not None and (self.due_ns is None or due_ns < self.due_ns):
            # Something is due earlier than they know: let them check, and sleep again.
            self.wake()
        return False


class Waiters:
    """A line of futures for each subscription that somebody waits on.

    The invariant: nobody who could receive something sleeps on. `wake` serves after any change of a
    queue, and looks at all of its lines. `wake_fed` and `wake_settled` look at fewer: those that a
    publish or a settlement can affect. (A waiter sleeps until the next lease or delay of its own
    subscription ends. What time does to others is noticed at the store's next `tick`.)
    """

    def __init__(self) -> None:
        self._lines: dict[Feed, dict[int, _Line]] = {}  # by feed, then by the reader's id

    async def wait(self, reader: Subscription, timeout_seconds: float, now_ns: int) -> bool:
        """Wait until something may be deliverable. False if the time was up first."""
        reader.mature(now_ns)
        if is_deliverable(reader):
            return True
        seconds = timeout_seconds
        due_ns = reader.next_due_ns()
        if due_ns is not None:
            until_due = (due_ns - now_ns) / NANOSECONDS
            seconds = min(seconds, max(_SHORTEST_WAIT_SECONDS, until_due))
        line = self._join(reader)
        line.due_ns = due_ns
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        line.waiters.append(waiter)
        timer = loop.call_later(seconds, _end, waiter, False)
        try:
            return await waiter or seconds < timeout_seconds
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                line.wake(1)  # it was woken but is cancelled: wake another one instead
            raise
        finally:
            timer.cancel()
            if waiter in line.waiters:
                line.waiters.remove(waiter)
            self._leave(line)

    async def wait_beyond(
        self, reader: Subscription, arrivals: int, timeout_seconds: float
    ) -> bool:
        """Wait until `Subscription.arrivals` differs. False if the time was up first."""
        if reader.arrivals != arrivals:
            return True
        loop = asyncio.get_running_loop()
        watcher = _Watcher(arrivals, loop.create_future())
        line = self._join(reader)
        line.watchers.append(watcher)
        timer = loop.call_later(timeout_seconds, _end, watcher.waiter, False)
        try:
            return await watcher.waiter
        finally:
            timer.cancel()
            line.watchers.remove(watcher)
            self._leave(line)

    def _join(self, reader: Subscription) -> _Line:
        lines = self._lines.setdefault(reader.feed, {})
        line = lines.get(reader.id)
        if line is None:
            line = lines[reader.id] = _Line(reader)
        return line

    def _leave(self, line: _Line) -> None:
        """Remove the line if nobody is left in it."""
        if line.waiters or line.watchers:
            return
        feed, id = line.reader.feed, line.reader.id
        lines = self._lines.get(feed, {})
        if lines.get(id) is line:
            del lines[id]
            if not lines:
                del self._lines[feed]

    def wake(self, queue: Queue, now_ns: int) -> bool:
        """Wake those who wait for a message of the queue, whatever happened to it.

        Returns whether somebody will come for a message in the loop's next turn.
        """
        if not self._lines:
            return False
        has_woken = self._wake_letters(queue, now_ns)
        return self._look_at(queue.feeds, now_ns) or has_woken

    def wake_fed(self, queue: Queue, count: int, now_ns: int) -> bool:
        """Like `wake`, after a publish of ``count`` messages: wakes at most that many per line.

        Only readers of the feeds that it reached can have got something.
        """
        return self._look_at(queue.feeds.reached, now_ns, count) if self._lines else False

    def wake_settled(self, reader: Subscription, now_ns: int) -> bool:
        """Like `wake`, after something was settled or given back on a subscription.

        That can make messages deliverable on it, on those that depend on it, directly or not, and
        in the dead-letter queue.
        """
        if not self._lines:
            return False
        has_woken = self._wake_letters(reader.queue, now_ns)
        for one in _with_descendants(reader) if reader.children else (reader,):
            line = self._line(one)
            if line is not None:
                has_woken |= line.look(now_ns)
        return has_woken

    def _look_at(self, feeds: Iterable[Feed], now_ns: int, count: int | None = None) -> bool:
        has_woken = False
        for feed in feeds:
            for line in self._lines.get(feed, _NOBODY).values():
                has_woken |= line.look(now_ns, count)
        return has_woken

    def _wake_letters(self, queue: Queue, now_ns: int) -> bool:
        letters = queue.dead_letters
        return letters is not None and self._look_at([letters.feeds.everything], now_ns)

    def _line(self, reader: Subscription) -> _Line | None:
        return self._lines.get(reader.feed, _NOBODY).get(reader.id)

    def wake_all(self, queue: Queue) -> None:
        """Wake everybody, because the queue or the store is going away."""
        for feed in queue.feeds:
            for line in self._lines.get(feed, _NOBODY).values():
                line.wake_all()
        if queue.dead_letters is not None:
            self.wake_all(queue.dead_letters)

    def wake_reader(self, reader: Subscription) -> None:
        """Wake everybody on a subscription, because it is going away."""
        line = self._line(reader)
        if line is not None:
            line.wake_all()


def _with_descendants(reader: Subscription) -> Iterable[Subscription]:
    """A subscription and all that depend on it, directly or not; each once."""
    found = {reader.id: reader}
    ahead = [reader]
    while ahead:
        for child in ahead.pop().children:
            if child.id not in found:
                found[child.id] = child
                ahead.append(child)
    return found.values()


def _end(waiter: _Waiter, is_woken: bool) -> bool:
    """Returns whether it was still waiting."""
    if waiter.done():
        return False
    waiter.set_result(is_woken)
    return True


def is_deliverable(reader: Subscription) -> bool:
    return not reader.config.paused and reader.room > 0 and bool(reader.ready_runs(1))

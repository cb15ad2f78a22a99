"""Coalescing: calls made at the same time become one request."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.client.errors import ClientClosed
from penstock.client.loop import belongs_elsewhere
from penstock.errors import Conflict, InvalidRequest, PenstockError

__all__ = ["Coalescer", "Limits"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Limits(NamedTuple):
    """`items` and `size` limit a request. A single call may exceed them, and then goes alone.

    The first call waits `linger_seconds` for others, or one turn of the event loop. While as many
    as `requests` are under way, calls gather for the next one. With only one at a time, calls are
    carried out in the order in which they were made.
    """

    items: int
    size: int
    linger_seconds: float = 0.0
    requests: int = 1


# Its items, their size, and what its caller waits for. A tuple, because there are so many.
_Call = tuple[Sequence[Item], int, "asyncio.Future[Sequence[Answer]]"]


class Coalescer(Generic[Item, Answer]):
    """Gathers the items of many calls, sends them together, and gives each call its answers.

    ``send`` returns an answer for each item, in order. When it refuses a request of several calls
    for a reason that may lie with one of them, each call is sent again by itself, so that a bad
    one harms no other. The items of one call are never split. A call that is cancelled before it
    was sent is not sent.
    """

    def __init__(
        self, send: Callable[[list[Item]], Awaitable[Sequence[Answer]]], limits: Limits
    ) -> None:
        self._send = send
        self._limits = limits
        self._waiting: deque[_Call[Item, Answer]] = deque()
        self._start_handle: asyncio.Handle | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, items: Sequence[Item], size: int) -> asyncio.Future[Sequence[Answer]]:
        """A future of the answers. Raises `ClientClosed`."""
        if self._is_closed:
            raise ClientClosed("the client was closed: make a new one")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop:
            raise belongs_elsewhere(self._loop)
        future: asyncio.Future[Sequence[Answer]] = loop.create_future()
        self._waiting.append((items, size, future))
        if self._start_handle is None:
            self._schedule(self._limits.linger_seconds)
        return future

    async def close(self) -> None:
        """Take no more calls, and wait until those already made are answered."""
        self._is_closed = True
        if self._start_handle is not None:
            self._start_handle.cancel()
            self._start()
        while self._requests:
            await asyncio.wait(self._requests)

    def _schedule(self, linger_seconds: float) -> None:
        if len(self._requests) < self._limits.requests:
            loop = asyncio.get_running_loop()
            self._start_handle = (
                loop.call_later(linger_seconds, self._start)
                if linger_seconds
                else loop.call_soon(self._start)
            )

    def _start(self) -> None:
        self._start_handle = None
        while self._waiting and len(self._requests) < self._limits.requests:
            if calls := self._gather():
                request = asyncio.create_task(self._send_on(calls))
                self._requests.add(request)
                request.add_done_callback(self._finish)

    def _finish(self, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        if self._waiting:
            if self._is_closed:
                self._start()
            elif self._start_handle is None:
                self._schedule(0)

    async def _send_on(self, calls: list[_Call[Item, Answer]]) -> None:
        """Carry out these calls, and then those that have gathered meanwhile."""
        while calls:
            await self._carry_out(calls)
            # Those just answered may call again, at once or a turn later, and join the next ones.
            await asyncio.sleep(0)
            if len(self._waiting) < len(calls):
                await asyncio.sleep(0)
            calls = self._gather()

    def _gather(self) -> list[_Call[Item, Answer]]:
        calls: list[_Call[Item, Answer]] = []
        count = total = 0
        most_items, most_size = self._limits.items, self._limits.size
        waiting = self._waiting
        while waiting:
            call = items, size, future = waiting[0]
            if not future.done():
                count += len(items)
                total += size
                if calls and (count > most_items or total > most_size):
                    break
                calls.append(call)
            waiting.popleft()
        return calls

    async def _carry_out(self, calls: list[_Call[Item, Answer]]) -> None:
        try:
            answers = await self._send([item for items, _, _ in calls for item in items])
        except PenstockError as exc:
            if len(calls) > 1 and _may_be_due_to_one(exc):
                for call in calls:
                    await self._carry_out([call])
                return
            _fail(calls, exc)
        except asyncio.CancelledError:
            _fail(calls, ClientClosed("the event loop ended before there was an answer"))
            raise
        except Exception as exc:
            _fail(calls, exc)
        else:
            start = 0
            for items, _, future in calls:
                stop = start + len(items)
                if not future.done():
                    future.set_result(answers[start:stop])
                start = stop


def _may_be_due_to_one(error: PenstockError) -> bool:
    # A bad message, a batch that is too large as a whole, or a queue without room for all.
    return isinstance(error, InvalidRequest | Conflict)


def _fail(calls: list[_Call[Item, Answer]], error: Exception) -> None:
    for _, _, future in calls:
        if not future.done():
            # A copy for each caller: one object would collect the tracebacks of all.
            own = copy.copy(error)
            own.__cause__ = error.__cause__
            future.set_exception(own)

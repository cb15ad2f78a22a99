"""Receiving ahead: deliveries are fetched before they are needed, and their leases kept alive."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.client.arguments import check_count, check_seconds
from penstock.client.errors import ServerFailed, TooManyRequests, Unreachable
from penstock.client.leases import Leases
from penstock.client.message import Delivery
from penstock.core.outcome import Outcome
from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument, StorageError

if TYPE_CHECKING:
    from penstock.client.async_client import AsyncClient

__all__ = ["Consumer"]

_MAX_RECEIVE = 1000
_LAST_ANSWER_SECONDS = 0.25
_PAUSES = Backoff(kind="exponential", base_seconds=0.2, max_seconds=10.0, jitter=0.5)
_TRANSIENT = (Unreachable, TooManyRequests, ServerFailed, StorageError)

logger = logging.getLogger("penstock.client")


class Consumer:
    """Fetches up to ``limit`` deliveries of a subscription ahead. An async context manager.

    As an iterator it hands out deliveries, whose leases are then the caller's business. `take`
    hands out one whose lease is still extended, until `release`. While the server is away it keeps
    trying; an error that will not pass by itself (no such queue, wrong password) is raised to
    whoever takes next. At the end, what nobody took is given back.
    """

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        subscription: str,
        *,
        limit: int,
        lease_seconds: float,
        wait_seconds: float,
        rng: random.Random,
    ) -> None:
        check_count("prefetch", limit)
        check_seconds("lease_seconds", lease_seconds, least=0.001)
        check_seconds("wait_seconds", wait_seconds)
        self._client = client
        self._queue = queue
        self._subscription = subscription
        self._limit = limit
        self._lease_seconds = lease_seconds
        self._wait_seconds = wait_seconds
        self._rng = rng
        self._leases = Leases(client, queue, subscription, seconds=lease_seconds)
        self._settling = 0
        self._ready: deque[Delivery] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._room = asyncio.Event()
        self._is_stopping = False
        self._error: Exception | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._fetching = asyncio.create_task(self._fetch())
        self._keeping = asyncio.create_task(self._leases.keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks = [task for task in (self._fetching, self._keeping) if task is not None]
        try:
            await self.stop()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        delivery = await self.take()
        if delivery is None:
            raise StopAsyncIteration
        self.release(delivery)
        return delivery

    async def take(self) -> Delivery | None:
        """The next delivery; None once the consumer was stopped."""
        if self._fetching is None:
            # Nobody is fetching, so it would wait for ever.
            raise InvalidArgument(
                "the consumer was not entered: async with client.consumer(...) as consumer"
            )
        while True:
            while self._ready:
                delivery = self._ready.popleft()
                if not self._ready:
                    self._room.set()
                if self._leases.has(delivery):
                    return delivery
            if self._error is not None:
                raise self._error
            if self._is_stopping:
                return None
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                # It may have been woken for a delivery that somebody else can take instead.
                self._wake(1)
                raise

    def settling(self) -> None:
        """Note that a delivery is being settled: the next may be fetched before the answer is here.

        Its lease is kept until `settled`. There may be up to ``limit`` of these, too.
        """
        self._settling += 1
        self._look_for_room()

    def settled(self, delivery: Delivery) -> None:
        self._settling -= 1
        self.release(delivery)

    def release(self, delivery: Delivery) -> None:
        """Stop extending its lease, and fetch another in its place."""
        self._leases.remove(delivery)
        self._look_for_room()

    async def stop(self) -> None:
        """Fetch no more, and give back what nobody took. Deliveries that were taken stay leased."""
        self._is_stopping = True
        self._room.set()
        self._give_back()
        self._wake(len(self._takers))
        if self._fetching is not None:
            # On a busy queue an answer is about to come, and what it brings can be given back at
            # once instead of when its lease ends. On an idle one there is nothing to wait for.
            await asyncio.wait([self._fetching], timeout=_LAST_ANSWER_SECONDS)
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _give_back(self) -> None:
        left = list(self._ready)
        self._ready.clear()
        for delivery in left:
            self._leases.remove(delivery)
        if left:
            settler = self._client.settler(self._queue, self._subscription)
            given = settler.give_back(left)
            given.add_done_callback(_log_failure)

    async def _fetch(self) -> None:
        failures = 0
        while not self._is_stopping:
            self._room.clear()
            room = self._count_room()
            if room < (self._limit + 1) // 2 and (self._ready or room < 1):
                # Fetching many at once is cheaper than one by one.
                await self._room.wait()
                continue
            try:
                found = await self._client.receive(
                    self._queue,
                    subscription=self._subscription,
                    limit=min(room, _MAX_RECEIVE),
                    wait_seconds=self._wait_seconds,
                    lease_seconds=self._lease_seconds,
                )
            except _TRANSIENT as exc:
                failures += 1
                logger.warning("receiving from %s failed, trying again: %s", self._queue, exc)
                await self._pause(_PAUSES.delay_seconds(failures, self._rng))
            except Exception as exc:
                # Whatever it is, the takers must hear of it, or they would wait for ever.
                self._error = exc
                self._wake(len(self._takers))
                return
            else:
                failures = 0
                self._leases.add(found)
                self._ready.extend(found)
                self._wake(len(found))
        self._give_back()

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._is_stopping and (left := until - loop.time()) > 0:
            self._room.clear()
            try:
                await asyncio.wait_for(self._room.wait(), left)
            except TimeoutError:
                return

    def _look_for_room(self) -> None:
        if not self._ready or self._count_room() >= (self._limit + 1) // 2:
            self._room.set()

    def _count_room(self) -> int:
        return self._limit - len(self._leases) + min(self._settling, self._limit)

    def _wake(self, count: int) -> None:
        while count > 0 and self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                count -= 1


def _log_failure(given: asyncio.Future[Sequence[list[Outcome]]]) -> None:
    if not given.cancelled() and (error := given.exception()) is not None:
        logger.warning("giving deliveries back failed, they come when their lease ends: %s", error)

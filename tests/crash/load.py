"""Many clients of some servers, who outlive them: what they asked, and what they were told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock import AsyncClient, Backoff, NewMessage
from penstock.client import Delivery, Published, Retry
from penstock.client.errors import Unreachable
from penstock.core import message as core
from penstock.core.receipt import Receipt
from penstock.errors import QueueExists, StoreUnavailable, SubscriptionExists
from tests.crash import report

CLIENTS = 6
LEASE_SECONDS = 2.0
# Until the server is there again.
PATIENT = Retry(attempts=200, backoff=Backoff(base_seconds=0.05, max_seconds=0.2))
# The next server is asked instead.
IMPATIENT = Retry(attempts=1)
_PAUSE_SECONDS = 0.05
_LOOK_SECONDS = 0.01

T = TypeVar("T")


class Asker:
    """Asks one server after the other until one answers: whatever it asks may be done twice."""

    def __init__(self, urls: Sequence[str], at: int, retry: Retry, timeout_seconds: float) -> None:
        self.clients = [
            AsyncClient(
                url,
                username="admin",
                password="adminpassword",
                retry=retry,
                timeout_seconds=timeout_seconds,
            )
            for url in urls
        ]
        self._at = at % len(urls)
        self.refusals = 0

    @property
    def client(self) -> AsyncClient:
        return self.clients[self._at]

    async def ask(self, call: Callable[[AsyncClient], Awaitable[T]]) -> T:
        while True:
            try:
                return await call(self.client)
            except (Unreachable, StoreUnavailable):
                await self.turn_away()

    async def turn_away(self) -> None:
        """This server did not answer, or cannot now."""
        self.refusals += 1
        self._at = (self._at + 1) % len(self.clients)
        await asyncio.sleep(_PAUSE_SECONDS)


class Load:
    """Publishers and consumers. ``lines`` is all that happened, in its order.

    Of the messages that come for the first time ``left`` in a hundred are not acked, so that they
    come again.
    """

    def __init__(
        self,
        *urls: str,
        retry: Retry = PATIENT,
        timeout_seconds: float = 30.0,
        left: int = 5,
    ) -> None:
        self.lines: list[report.Line] = []
        self._left = left
        self._askers = [Asker(urls, at, retry, timeout_seconds) for at in range(CLIENTS)]
        self._numbers = count()
        self._calls = count(1)
        self._published = 0
        self._acked = 0
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def refusals(self) -> int:
        """How often a server did not answer, or could not."""
        return sum(asker.refusals for asker in self._askers)

    async def __aenter__(self) -> Self:
        await self._define(self._askers[0].client)
        for asker in self._askers:
            work = [self._publish(asker, size) for size in (1, 2, 5)]
            work += [self._consume(asker, name) for name in (report.FIRST, report.SECOND)]
            self._tasks += [asyncio.create_task(one) for one in work]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends when every call under way has been answered, so a server must be there."""
        self._is_over = True
        if error is not None:
            for task in self._tasks:
                task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=error is not None)
        finally:
            for asker in self._askers:
                for client in asker.clients:
                    await client.close()

    async def go_on(self, messages: int) -> None:
        """Until so many more were published and so many more settled."""
        published, acked = self._published + messages, self._acked + messages
        while self._published < published or self._acked < acked:
            self._raise_failure()
            await asyncio.sleep(_LOOK_SECONDS)

    def _raise_failure(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def drain(self) -> None:
        """Nothing more is published; until all of it is settled on both subscriptions."""
        self._is_over = True
        await asyncio.gather(*self._tasks)
        asker = self._askers[0]
        while True:
            for name in (report.FIRST, report.SECOND):
                await self._consume_once(asker, name)
            stats = await asker.ask(lambda client: client.queue_stats(report.QUEUE))
            if not any(
                one.ready + one.in_flight + one.delayed + one.parked + one.held
                for one in stats.subscriptions
            ):
                return

    @asynccontextmanager
    async def losing(self) -> AsyncIterator[None]:
        """Meanwhile the store loses what it has not promised to keep."""
        call = next(self._calls)
        self._say(report.Lose(call=call, at_ns=time.time_ns()))
        yield
        self._say(report.Lost(call=call, at_ns=time.time_ns()))

    @asynccontextmanager
    async def rebuilding(self) -> AsyncIterator[None]:
        """Meanwhile servers put back what the store has lost."""
        call = next(self._calls)
        self._say(report.Rebuild(call=call, at_ns=time.time_ns()))
        yield
        self._say(report.Rebuilt(call=call, at_ns=time.time_ns()))

    async def ask_every_server(self) -> None:
        """Until each server has answered a publish made now, of a message that it has already.

        A server answers the publishes of a queue in order, so it has archived all before this one.
        """
        asked = {line.call: line for line in self.lines if isinstance(line, report.Publish)}
        first = next(line for line in self.lines if isinstance(line, report.Published))
        number = asked[first.call].numbers[0]
        message = NewMessage(body=report.body_of(number), dedup_key=report.key_of(number))
        for client in self._askers[0].clients:
            found = await _insist(partial(client.publish, report.QUEUE, [message]))
            assert [(m.index, m.id) for m in found] == first.entries[:1]

    async def _define(self, client: AsyncClient) -> None:
        settings: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "max_deliveries": None}
        with suppress(QueueExists):
            await client.create_queue(report.QUEUE)
        await client.alter_subscription(report.QUEUE, report.FIRST, **settings)
        with suppress(SubscriptionExists):
            await client.create_subscription(
                report.QUEUE, report.SECOND, start="earliest", after=(report.FIRST,), **settings
            )

    async def _publish(self, asker: Asker, size: int) -> None:
        while not self._is_over:
            numbers = [next(self._numbers) for _ in range(size)]
            call = next(self._calls)
            self._say(report.Publish(call=call, at_ns=time.time_ns(), numbers=numbers, keyed=True))
            messages = [
                NewMessage(body=report.body_of(number), dedup_key=report.key_of(number))
                for number in numbers
            ]
            result = await asker.ask(partial(_publish, messages=messages))
            self._published += size
            entries = [(m.index, m.id) for m in result]
            self._say(report.Published(call=call, at_ns=time.time_ns(), entries=entries))
            await asyncio.sleep(0.005)  # so that consumers can keep up

    async def _consume(self, asker: Asker, subscription: str) -> None:
        while not self._is_over:
            await self._consume_once(asker, subscription)

    async def _consume_once(self, asker: Asker, subscription: str) -> None:
        call = next(self._calls)
        self._say(report.Receive(call=call, at_ns=time.time_ns(), subscription=subscription))
        try:
            deliveries = await asker.client.receive(
                report.QUEUE, subscription=subscription, limit=20, wait_seconds=0.05
            )
        except (Unreachable, StoreUnavailable):
            await asker.turn_away()
            return  # what it may have leased comes again
        given = [as_stored(delivery) for delivery in deliveries]
        self._say(report.Received(call=call, at_ns=time.time_ns(), deliveries=given))
        receipts = [
            d.receipt for d in deliveries if d.index % 100 >= self._left or d.deliveries > 1
        ]
        if receipts:
            await self._ack(asker, subscription, receipts)

    async def _ack(self, asker: Asker, subscription: str, receipts: list[str]) -> None:
        call = next(self._calls)
        at_ns = time.time_ns()
        self._say(report.Ack(call=call, at_ns=at_ns, subscription=subscription, receipts=receipts))
        outcomes = await asker.ask(lambda client: client.ack(report.QUEUE, receipts, subscription))
        self._acked += len(outcomes)
        said = [outcome.value for outcome in outcomes]
        self._say(report.Acked(call=call, at_ns=time.time_ns(), outcomes=said))

    def _say(self, line: report.Line) -> None:
        self.lines.append(line)


async def _publish(client: AsyncClient, messages: list[NewMessage]) -> Published:
    return await client.publish(report.QUEUE, messages)


async def _insist(call: Callable[[], Awaitable[T]]) -> T:
    """Ask the same server until it answers."""
    while True:
        try:
            return await call()
        except (Unreachable, StoreUnavailable):
            await asyncio.sleep(_PAUSE_SECONDS)


def as_stored(delivery: Delivery) -> core.Delivery:
    """What the client got, in the form that the checker knows."""
    parsed = core.parse_message_id(delivery.id)
    receipt = Receipt.parse(delivery.receipt)
    assert parsed is not None
    assert delivery.deadline is not None
    return core.Delivery(
        queue=delivery.queue,
        index=delivery.index,
        created_at_ns=parsed.created_ms * 1_000_000,
        salt=parsed.salt,
        body=delivery.body,
        envelope=core.Envelope(dedup_key=delivery.dedup_key),
        dead_letter=None,
        subscription_id=receipt.subscription_id,
        epoch=receipt.epoch,
        deliveries=delivery.deliveries,
        deadline_ns=int(delivery.deadline.timestamp() * 1_000_000) * 1000,
    )

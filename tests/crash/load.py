"""Many clients of one server, who outlive it: what they asked, and what they were told."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Self

from penstock import AsyncClient, Backoff, NewMessage
from penstock.client import Delivery, Retry
from penstock.client.errors import Unreachable
from penstock.core import message as core
from penstock.core.receipt import Receipt
from penstock.errors import QueueExists, SubscriptionExists
from tests.crash import report

CLIENTS = 6
LEASE_SECONDS = 2.0
# Until the server is there again.
PATIENT = Retry(attempts=200, backoff=Backoff(base_seconds=0.05, max_seconds=0.2))


class Load:
    """Publishers and consumers. ``lines`` is all that happened, in its order."""

    def __init__(self, url: str) -> None:
        self.lines: list[report.Line] = []
        self._clients = [
            AsyncClient(url, username="admin", password="adminpassword", retry=PATIENT)
            for _ in range(CLIENTS)
        ]
        self._numbers = count()
        self._calls = count(1)
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._define(self._clients[0])
        for client in self._clients:
            work = [self._publish(client, size) for size in (1, 2, 5)]
            work += [self._consume(client, name) for name in (report.FIRST, report.SECOND)]
            self._tasks += [asyncio.create_task(one) for one in work]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends when every call under way has been answered, so the server must be there."""
        self._is_over = True
        if error is not None:
            for task in self._tasks:
                task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=error is not None)
        finally:
            for client in self._clients:
                await client.close()

    async def _define(self, client: AsyncClient) -> None:
        settings: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "max_deliveries": None}
        with suppress(QueueExists):
            await client.create_queue(report.QUEUE)
        await client.alter_subscription(report.QUEUE, report.FIRST, **settings)
        with suppress(SubscriptionExists):
            await client.create_subscription(
                report.QUEUE, report.SECOND, start="earliest", after=(report.FIRST,), **settings
            )

    async def _publish(self, client: AsyncClient, size: int) -> None:
        while not self._is_over:
            numbers = [next(self._numbers) for _ in range(size)]
            call = next(self._calls)
            self._say(report.Publish(call=call, at_ns=time.time_ns(), numbers=numbers, keyed=True))
            messages = [
                NewMessage(body=report.body_of(number), dedup_key=report.key_of(number))
                for number in numbers
            ]
            result = await client.publish(report.QUEUE, messages)
            self._say(report.Published(call=call, entries=[(m.index, m.id) for m in result]))
            await asyncio.sleep(0.005)  # so that consumers can keep up

    async def _consume(self, client: AsyncClient, subscription: str) -> None:
        while not self._is_over:
            call = next(self._calls)
            self._say(report.Receive(call=call, at_ns=time.time_ns(), subscription=subscription))
            try:
                deliveries = await client.receive(
                    report.QUEUE, subscription=subscription, limit=20, wait_seconds=0.05
                )
            except Unreachable:
                continue  # what it may have leased comes again
            given = [as_stored(delivery) for delivery in deliveries]
            self._say(report.Received(call=call, at_ns=time.time_ns(), deliveries=given))
            # One of twenty is left to its lease, so that some come again.
            receipts = [d.receipt for d in deliveries if d.index % 20 or d.deliveries > 1]
            if receipts:
                await self._ack(client, subscription, receipts)

    async def _ack(self, client: AsyncClient, subscription: str, receipts: list[str]) -> None:
        call = next(self._calls)
        at_ns = time.time_ns()
        self._say(report.Ack(call=call, at_ns=at_ns, subscription=subscription, receipts=receipts))
        outcomes = await client.ack(report.QUEUE, receipts, subscription)
        self._say(report.Acked(call=call, outcomes=[outcome.value for outcome in outcomes]))

    def _say(self, line: report.Line) -> None:
        self.lines.append(line)


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
        subscription_id=receipt.subscription_id,
        epoch=receipt.epoch,
        deliveries=delivery.deliveries,
        deadline_ns=int(delivery.deadline.timestamp() * 1_000_000) * 1000,
    )

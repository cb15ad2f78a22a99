"""A process that publishes, receives and acks as fast as it can, until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from itertools import count

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.publishing import prepare
from penstock.errors import QueueExists, SubscriptionExists
from penstock.storage import base
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore
from tests.crash import report
from tests.crash.report import body_of

SEGMENT_BYTES = 64 * 1024
LEASE_SECONDS = 0.5
KEPT_MESSAGES = 1000  # beside those that are not settled
PUBLISHERS = 4
CONSUMERS = 3  # of each subscription
LIMIT_SECONDS = 20  # in case nobody kills it


class Worker:
    def __init__(self, store: WalStore, first_number: int) -> None:
        self._store = store
        self._numbers = count(first_number)
        self._calls = count(1)

    async def run(self) -> None:
        await self._define()
        tasks = [self._publish(size) for size in range(1, PUBLISHERS + 1)]
        tasks += [self._consume(name) for name in (report.FIRST, report.SECOND) * CONSUMERS]
        await asyncio.gather(*tasks, self._tick())

    async def _define(self) -> None:
        settings = {"lease_seconds": LEASE_SECONDS, "max_deliveries": None}
        config = QueueConfig(retention_messages=KEPT_MESSAGES)
        second = SubscriptionConfig(
            after=(report.FIRST,), lease_seconds=LEASE_SECONDS, max_deliveries=None
        )
        changes: list[base.Change] = [
            base.CreateQueue(queue=report.QUEUE, config=config),
            base.AlterSubscription(queue=report.QUEUE, subscription=report.FIRST, changes=settings),
            base.CreateSubscription(
                queue=report.QUEUE,
                subscription=report.SECOND,
                config=second,
                start="earliest",
            ),
        ]
        for change in changes:
            with suppress(QueueExists, SubscriptionExists):
                await self._store.define(change)

    async def _publish(self, size: int) -> None:
        while True:
            numbers = [next(self._numbers) for _ in range(size)]
            call = next(self._calls)
            _say(report.Publish(call=call, at_ns=time.time_ns(), numbers=numbers))
            batch = prepare([body_of(number) for number in numbers])
            result = await self._store.publish(report.QUEUE, batch)
            entries = [(m.index, m.id) for m in result]
            _say(report.Published(call=call, at_ns=time.time_ns(), entries=entries))

    async def _consume(self, subscription: str) -> None:
        while True:
            call = next(self._calls)
            _say(report.Receive(call=call, at_ns=time.time_ns(), subscription=subscription))
            deliveries = await self._store.receive(report.QUEUE, subscription, base.Next(limit=5))
            at_ns = time.time_ns()
            _say(report.Received(call=call, at_ns=at_ns, deliveries=deliveries))
            if not deliveries:
                await asyncio.sleep(0.001)
                continue
            # One of five is left to its lease, so that some come again.
            receipts = [d.receipt for d in deliveries if d.index % 5 or d.deliveries > 1]
            if receipts:
                await self._ack(subscription, receipts)

    async def _ack(self, subscription: str, receipts: list[str]) -> None:
        call = next(self._calls)
        _say(
            report.Ack(
                call=call, at_ns=time.time_ns(), subscription=subscription, receipts=receipts
            )
        )
        settlement = base.Ack(targets=receipts)
        outcomes = await self._store.settle(report.QUEUE, subscription, [settlement])
        said = [outcome.value for outcome in outcomes[0]]
        _say(report.Acked(call=call, at_ns=time.time_ns(), outcomes=said))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            await self._store.tick()


def _say(line: report.Line) -> None:
    data = report.encode(line)
    while data:
        data = data[os.write(1, data) :]


async def main(directory: str, first_number: int) -> None:
    store = await WalStore.open(DiskFiles(directory), segment_bytes=SEGMENT_BYTES)
    await asyncio.wait_for(Worker(store, first_number).run(), LIMIT_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

"""Penstock through its own client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar, Self

from benchmarks.harness.sample import Sample
from benchmarks.http.count import Count
from benchmarks.http.penstock_server import QUEUE, Address, penstock_server
from penstock.client import AsyncClient, Delivery
from penstock.client.worker import Worker, WorkerSettings

PREFETCH = 100
"""Leased at once, as many as the others fetch."""
HANDLERS = 10


class Penstock:
    """`AsyncClient.publish` and a worker, with their defaults but for the number of handlers."""

    name: ClassVar[str] = "penstock"
    needs: ClassVar[str] = ""
    durability: ClassVar[str] = "everything"

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    @classmethod
    def is_installed(cls) -> bool:
        return True

    @classmethod
    def running(cls, directory: Path) -> AbstractContextManager[Address]:
        return penstock_server(directory)

    @classmethod
    @asynccontextmanager
    async def connected(cls, server: Address) -> AsyncIterator[Self]:
        async with server.admin() as admin:
            await admin.create_queue(QUEUE)
        async with server.client() as client:
            yield cls(client)

    async def publish(self, body: bytes) -> None:
        await self._client.publish(QUEUE, [body])

    async def publish_many(self, bodies: list[bytes]) -> None:
        await self._client.publish(QUEUE, bodies)

    async def consume(self, seconds: float, limit: int) -> Sample:
        count = Count(seconds, limit)

        async def handle(delivery: Delivery) -> None:
            count.add()

        settings = WorkerSettings(queue=QUEUE, concurrency=HANDLERS, prefetch=PREFETCH - HANDLERS)
        worker = Worker(self._client, handle, settings, random.Random(0))
        running = asyncio.create_task(worker.run())
        sample = await count.reached()
        worker.end()
        await running
        return sample

"""Penstock, as the rows use it: the only place that opens a store."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import perf_counter
from typing import Literal

import penstock
from benchmarks.engine.scale import BODY_BYTES
from benchmarks.harness.sample import Sample

Sync = Literal["always", "interval", "never"]

QUEUE = "bench"
DEFAULT = "default"
"""The subscription that every queue has."""


def open_store(directory: Path, *, sync: Sync) -> AbstractAsyncContextManager[penstock.Broker]:
    return penstock.open(f"wal:{directory}", sync=sync)


def make_bodies(count: int) -> list[bytes]:
    """Bodies of the benchmark's size: the same in every run, and none like another."""
    source = random.Random(256)
    return [source.randbytes(BODY_BYTES) for _ in range(count)]


async def publish_for(
    broker: penstock.Broker, batch: list[bytes], *, tasks: int, seconds: float
) -> Sample:
    """`tasks` publishers, each sending `batch` again as soon as it was answered."""
    start = perf_counter()
    deadline = start + seconds

    async def publisher() -> int:
        sent = 0
        while perf_counter() < deadline:
            await broker.publish(QUEUE, batch)
            sent += len(batch)
        return sent

    sent = await asyncio.gather(*(publisher() for _ in range(tasks)))
    return Sample(messages=sum(sent), seconds=perf_counter() - start)


async def publish_count(
    broker: penstock.Broker, batch: list[bytes], *, tasks: int, messages: int
) -> None:
    """Publish exactly `messages`, a multiple of the batch, by `tasks` publishers."""
    batches = iter(range(messages // len(batch)))

    async def publisher() -> None:
        for _ in batches:
            await broker.publish(QUEUE, batch)

    await asyncio.gather(*(publisher() for _ in range(tasks)))


async def receive_and_ack(
    broker: penstock.Broker, *, limit: int, subscription: str = DEFAULT
) -> int:
    """Receive up to `limit` and ack them all; returns how many there were."""
    deliveries = await broker.receive(QUEUE, subscription=subscription, limit=limit)
    if deliveries:
        await broker.ack(QUEUE, deliveries, subscription=subscription)
    return len(deliveries)

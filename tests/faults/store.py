"""A real store on a real directory, with a history that touches every kind of file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from penstock import NewMessage
from penstock.broker import Broker
from penstock.storage.wal.files import DiskFiles, Files
from penstock.storage.wal.store import WalStore

SEGMENT_BYTES = 4096
# One for all stores: a salt that came again would make an index seem to be of another file.
_salts = Random(2)
START_NS = 1_800_000_000_000_000_000


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.ns = START_NS

    def now_ns(self) -> int:
        return self.ns

    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


async def open_store(
    files: Files | Path,
    *,
    clock: Clock | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    cache_bytes: int = 0,
) -> WalStore:
    """Small segments, and no cache: what is read comes from the disk."""
    return await WalStore.open(
        DiskFiles(files) if isinstance(files, Path) else files,
        clock=clock or Clock(),
        rng=Random(1),
        segment_bytes=segment_bytes,
        cache_bytes=cache_bytes,
        random_bytes=_salts.randbytes,
    )


@asynccontextmanager
async def broker_on(files: Files | Path, *, clock: Clock | None = None) -> AsyncIterator[Broker]:
    async with Broker(await open_store(files, clock=clock)) as broker:
        yield broker


@dataclass
class History:
    """What happened: the bodies of each queue by index, and what each subscription has acked."""

    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    acked: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    async def publish(self, broker: Broker, queue: str, messages: list[NewMessage]) -> None:
        self.bodies.setdefault(queue, []).extend(message.body for message in messages)
        await broker.publish(queue, messages)

    async def ack(
        self, broker: Broker, queue: str, limit: int, subscription: str = "default"
    ) -> None:
        deliveries = await broker.receive(queue, subscription=subscription, limit=limit)
        await broker.ack(queue, [d.receipt for d in deliveries], subscription)
        done = self.acked.setdefault((queue, subscription), set())
        done.update(d.index for d in deliveries)


def order(number: int, **settings: object) -> NewMessage:
    body = json.dumps({"order": number, "kind": "even" if number % 2 == 0 else "odd"})
    return NewMessage(body=body.encode(), **settings)  # type: ignore[arg-type]


async def make_history(path: Path, *, closed: bool = True) -> History:
    """Queues with dead letters, priorities, a filter, a dependency; checkpoints, packs, a tail.

    Without ``closed`` it ends as with ``kill -9``: the last events are in the log alone.
    """
    clock = Clock()
    history = History()
    store = await open_store(path, clock=clock)
    broker = Broker(store)
    await broker.create_queue("orders")
    await broker.create_queue("brief", retention_messages=4)
    await broker.create_subscription("orders", "even", filter="body.kind == 'even'")
    await broker.create_subscription("orders", "billing", start="earliest")
    await broker.create_subscription("orders", "mail", after=["billing"], start="earliest")
    for number in range(40):
        padding = {"padding": "." * 100}
        await history.publish(broker, "brief", [order(number, attributes=padding)])
    for number in range(30):
        messages = [order(2 * number, priority=number % 3), order(2 * number + 1)]
        await history.publish(broker, "orders", messages)
        clock.advance(1)
    # Most of the first segments is settled and removed, but for one message that is not.
    kept = await broker.receive("brief", limit=1, lease_seconds=1e6)
    await history.ack(broker, "brief", 37)
    await history.ack(broker, "orders", 10)
    await history.ack(broker, "orders", 12, "billing")
    await history.ack(broker, "orders", 5, "mail")
    failed = (await broker.receive("orders", limit=2, lease_seconds=1e6))[:2]
    for _ in range(5):
        await broker.nack("orders", [d.receipt for d in failed], reason="no stock", delay_seconds=0)
        failed = await broker.receive("orders", limit=2, lease_seconds=1e6)
    await store.tick()
    await store.checkpoint()
    await store.tick()
    await store.checkpoint()
    assert kept
    for number in range(30, 45):
        await history.publish(broker, "orders", [order(2 * number), order(2 * number + 1)])
        await history.ack(broker, "orders", 1, "even")
        clock.advance(1)
    if closed:
        await broker.close()
    else:
        await abandon(store)
    return history


async def abandon(store: WalStore) -> None:
    """Leave the directory as it is when the process dies."""
    await store._committer.stop()
    store._files.unlock()
    store._closed = True

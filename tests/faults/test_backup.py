"""Copies of a data directory that is in use, as `docs/operations.md` says to make them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.errors import CorruptLog
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore

COPIES = 8
SEGMENT_BYTES = 64 * 1024
QUEUE = "orders"


def copy_in_order(source: Path, target: Path) -> None:
    """Checkpoints, then packs, then segments: what is copied later is never the older one."""
    target.mkdir()
    for kind in ("*.ckpt", "*.pack", "*.log"):
        for file in sorted(source.glob(kind)):
            if file.name != "spare.log":
                shutil.copyfile(file, target / file.name)


class Life:
    """Publishes and acks without pause, and remembers what was answered."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.published: set[int] = set()
        self.acking: set[int] = set()
        self.acked: set[int] = set()
        self.is_over = False

    async def publish(self) -> None:
        while not self.is_over:
            result = await self._broker.publish(QUEUE, [b"x" * 500] * 5)
            self.published |= {message.index for message in result}

    async def consume(self) -> None:
        while not self.is_over:
            deliveries = await self._broker.receive(QUEUE, limit=20)
            # Some are never acked, so that old segments are packed and not only dropped.
            done = [delivery for delivery in deliveries if delivery.index % 50]
            indexes = {delivery.index for delivery in done}
            self.acking |= indexes
            if done:
                await self._broker.ack(QUEUE, done)
                self.acked |= indexes
            await asyncio.sleep(0)


async def open_broker(directory: Path) -> Broker:
    return Broker(await WalStore.open(DiskFiles(directory), segment_bytes=SEGMENT_BYTES))


async def unsettled_in(broker: Broker) -> set[int]:
    viewed = await broker.view(QUEUE, settled=False, limit=100_000)
    return {one.index for one in viewed}


async def test_a_copy_of_a_directory_in_use_is_whole_or_is_refused(tmp_path: Path) -> None:
    # Given a store that is busy, and drops and packs old segments meanwhile
    directory = tmp_path / "data"
    wholes = 0
    async with await open_broker(directory) as broker:
        await broker.create_queue(QUEUE, retention_messages=500)
        await broker.alter_subscription(QUEUE, "default", max_in_flight=100_000, lease_seconds=3600)
        life = Life(broker)
        work = [life.publish(), life.publish(), life.consume()]
        tasks = [asyncio.create_task(one) for one in work]
        for number in range(COPIES):
            await asyncio.sleep(0.05)
            # When it is copied in the order that the page gives
            published, acked = set(life.published), set(life.acked)
            copy = tmp_path / f"copy-{number}"
            try:
                await asyncio.to_thread(copy_in_order, directory, copy)
                certain = published - life.acking
                async with await open_broker(copy) as restored:
                    unsettled = await unsettled_in(restored)
            except (CorruptLog, FileNotFoundError):
                continue  # it says so, and the copy is made again
            # Then it has all that was answered before the copy began
            wholes += 1
            assert certain <= unsettled
            assert not acked & unsettled
        life.is_over = True
        await asyncio.gather(*tasks)
    assert wholes > 0


async def test_a_copy_in_another_order_is_refused(tmp_path: Path) -> None:
    # Given a copy whose segments were taken first
    directory, copy = tmp_path / "data", tmp_path / "copy"
    copy.mkdir()
    store = await WalStore.open(DiskFiles(directory), segment_bytes=SEGMENT_BYTES)
    async with Broker(store) as broker:
        await broker.create_queue(QUEUE)
        await broker.publish(QUEUE, [b"x" * 500] * 20)
        [first] = directory.glob("0*.log")
        shutil.copyfile(first, copy / first.name)
        # When more is written, and a checkpoint stands for it
        await broker.publish(QUEUE, [b"x" * 500] * 20)
        await store.checkpoint()
        for file in (*directory.glob("*.ckpt"), max(directory.glob("0*.log"))):
            shutil.copyfile(file, copy / file.name)
    # Then what the checkpoint speaks of is missed, though all that is there reads well
    with pytest.raises(CorruptLog) as caught:
        await open_broker(copy)
    assert caught.value.file == first.name

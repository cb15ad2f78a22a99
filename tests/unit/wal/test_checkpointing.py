"""What goes on while a checkpoint is saved."""

from __future__ import annotations

import asyncio
import errno
import threading
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.core.snapshot import take_snapshot
from penstock.errors import DiskFull
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore
from tests.faults.store import open_store
from tests.simulation.files import Operation, SimulatedFiles

PATIENCE_SECONDS = 10


class SlowFiles(DiskFiles):
    """Saves checkpoints when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_saving = threading.Event()
        self.may_save = threading.Event()

    def replace(self, name: str, data: bytes) -> None:
        if name.endswith(".ckpt"):
            self.is_saving.set()
            assert self.may_save.wait(PATIENCE_SECONDS)
        super().replace(name, data)


async def test_publishes_and_acks_are_answered_while_a_checkpoint_is_written(
    tmp_path: Path,
) -> None:
    files = SlowFiles(tmp_path / "data")
    async with Broker(store := await open_store(files)) as broker:
        await broker.create_queue("q")
        await broker.publish("q", [b"before"])
        # Given a checkpoint that takes its time
        saving = asyncio.create_task(store.checkpoint())
        assert await asyncio.to_thread(files.is_saving.wait, PATIENCE_SECONDS)
        # When somebody publishes and acks
        async with asyncio.timeout(PATIENCE_SECONDS):
            await broker.publish("q", [b"meanwhile"])
            [delivery] = await broker.receive("q")
            await broker.ack("q", [delivery])
        # Then it was answered before the checkpoint was there
        assert not saving.done()
        files.may_save.set()
        await saving
    # And is there after the next start
    async with Broker(await open_store(tmp_path / "data")) as broker:
        assert [d.body for d in await broker.receive("q", limit=10)] == [b"meanwhile"]


async def test_checkpoints_that_find_no_space_leave_nothing_behind() -> None:
    # Given a disk with space for some of a checkpoint only
    def fault(operation: Operation) -> None:
        if operation.kind == "write" and operation.name.endswith(".ckpt.tmp"):
            raise OSError(errno.ENOSPC, "full")

    files = SimulatedFiles(Random(1))
    async with Broker(store := await WalStore.open(files, segment_bytes=4096)) as broker:
        await broker.create_queue("q")
        files.fault = fault
        # When one is tried for again and again
        for _ in range(3):
            await broker.publish("q", [b"x"])
            with pytest.raises(DiskFull):
                await store.checkpoint()
        # Then what space there is stays free
        assert [name for name in files.names() if name.endswith(".tmp")] == []


async def test_a_snapshot_stays_as_it_is_whatever_happens_to_the_machine(tmp_path: Path) -> None:
    async with Broker(store := await open_store(tmp_path / "data")) as broker:
        # Given two queues with some of everything, and their snapshot
        await broker.create_queue("fifo", fifo=True, events=True)
        await broker.create_queue("plain")
        await broker.alter_subscription("plain", "default", max_deliveries=1)
        await go_on(broker, 0)
        snapshot = take_snapshot(store.machine)
        before = msgspec.msgpack.encode(snapshot)
        # When the machine goes on
        await go_on(broker, 1)
        await broker.purge_queue("fifo")
        # Then a thread that encodes the snapshot meets nothing that changes
        assert msgspec.msgpack.encode(snapshot) == before


async def go_on(broker: Broker, run: int) -> None:
    """Keys, groups, leases, acks, expiries, a message that comes back, and a dead letter."""
    for at in range(12):
        message = NewMessage(body=b"x", group_key=f"group-{at % 3}", dedup_key=f"{run}-{at}")
        await broker.publish("fifo", [message], idempotency_key=f"{run}-{at}")
        # Two that are the same
        message = NewMessage(
            body=b"x", dedup_key=f"{run}-{at}", expires_at=datetime(2100, 1, 1, tzinfo=UTC)
        )
        await broker.publish("plain", [message, message], idempotency_key=f"{run}-{at}")
        await broker.publish("plain", [b"x"])
    [failed, *others] = await broker.receive("fifo", limit=3)
    await broker.nack("fifo", [failed], reason="no", delay_seconds=60)
    await broker.ack("fifo", others[:1])
    [failed, *_] = await broker.receive("plain", limit=3)
    await broker.nack("plain", [failed], reason="no")

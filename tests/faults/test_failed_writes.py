"""A write or a sync that fails is final: the store is read-only until it is opened again."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.errors import StorageFailed
from tests.faults.files import FaultyFiles, failing, no_fault
from tests.faults.store import broker_on, open_store

KINDS = ["write", "sync"]


async def broken_store(files: FaultyFiles, kind: str) -> Broker:
    """With three messages, one of them acked; then the disk fails for once."""
    broker = Broker(await open_store(files))
    await broker.create_queue("orders")
    await broker.publish("orders", [b"a", b"b", b"c"])
    [delivery] = await broker.receive("orders")
    await broker.ack("orders", [delivery.receipt])
    files.fault = failing(errno.EIO, kind)
    with pytest.raises(StorageFailed) as failure:
        await broker.publish("orders", [b"never answered"])
    assert failure.value.code == "storage_failed"
    assert "open the store again" in str(failure.value)
    files.fault = no_fault
    return broker


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_is_never_retried_though_the_disk_would_work_again(
    tmp_path: Path, kind: str
) -> None:
    # Given a disk that failed once
    broker = await broken_store(FaultyFiles(tmp_path / "data"), kind)
    # Then everything that would change something is refused
    with pytest.raises(StorageFailed):
        await broker.publish("orders", [b"d"])
    with pytest.raises(StorageFailed):
        await broker.receive("orders")
    with pytest.raises(StorageFailed):
        await broker.ack_up_to("orders", 3)
    with pytest.raises(StorageFailed):
        await broker.create_queue("other")
    await broker.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_accepted_before_a_failure_can_still_be_read(
    tmp_path: Path, kind: str
) -> None:
    broker = await broken_store(FaultyFiles(tmp_path / "data"), kind)
    assert [m.body for m in await broker.read("orders", 0, 3)] == [b"a", b"b", b"c"]
    await broker.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_after_a_failure_the_store_opens_again_with_all_that_was_answered(
    tmp_path: Path, kind: str
) -> None:
    # Given a store that failed and was closed
    broker = await broken_store(FaultyFiles(tmp_path / "data"), kind)
    await broker.close()
    # When it is opened again
    async with broker_on(tmp_path / "data") as broker:
        # Then all that was answered is there, and the store works
        assert [m.body for m in await broker.read("orders", 0, 3)] == [b"a", b"b", b"c"]
        assert [d.index for d in await broker.receive("orders", limit=2)] == [1, 2]
        await broker.publish("orders", [b"d"])


async def test_a_checkpoint_that_fails_fails_for_everybody_who_asked_for_one(
    tmp_path: Path,
) -> None:
    # Given a disk that fails while two ask for a checkpoint
    files = FaultyFiles(tmp_path / "data")
    store = await open_store(files)
    await Broker(store).create_queue("orders")
    files.fault = failing(errno.EIO, "sync")
    answers = await asyncio.gather(store.checkpoint(), store.checkpoint(), return_exceptions=True)
    # Then neither takes it for done
    assert [type(answer) for answer in answers] == [StorageFailed, StorageFailed]
    await store.close()


async def test_a_close_whose_checkpoint_breaks_lets_go_of_the_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a store whose checkpoint meets something that is not the disk's failure
    class NoMemory(FaultyFiles):
        def replace(self, name: str, data: bytes) -> None:
            if name.endswith(".ckpt"):
                raise MemoryError
            super().replace(name, data)

    broker = Broker(await open_store(NoMemory(tmp_path / "data")))
    await broker.create_queue("orders")
    await broker.publish("orders", [b"a"])
    # When it is closed, then that is told
    await broker.close()
    assert "no checkpoint at close" in caplog.text
    assert "MemoryError" in caplog.text
    # And another can open it, with all that was accepted
    async with broker_on(FaultyFiles(tmp_path / "data")) as broker:
        assert [d.body for d in await broker.receive("orders")] == [b"a"]

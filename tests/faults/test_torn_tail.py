"""The end of a log that was being written when the power failed is cut off, and only that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import penstock
from penstock.broker import Broker
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.verify import verify
from penstock.storage.wal.segment import file_name
from tests.faults.store import broker_on, open_store


async def killed_store(path: Path) -> int:
    """Two answered publishes, as `kill -9` leaves them: no closing mark. Where the log ends."""
    store = await open_store(path)
    broker = Broker(store)
    await broker.create_queue("orders")
    await broker.publish("orders", [b"first"])
    await broker.publish("orders", [b"second"])
    end = store._log.written & 0xFFFFFFFF
    data = (path / file_name(1)).read_bytes()
    await broker.close()
    put_back(path, data)
    return end


def put_back(path: Path, data: bytes) -> None:
    shutil.rmtree(path)
    path.mkdir()
    (path / file_name(1)).write_bytes(data)


async def bodies(path: Path) -> list[bytes]:
    async with broker_on(path) as broker:
        return [m.body for m in await broker.read("orders", 0, 10)]


async def test_a_half_written_record_is_cut_off_at_the_next_start(tmp_path: Path) -> None:
    # Given a log that ends in half a record
    end = await killed_store(tmp_path)
    with (tmp_path / file_name(1)).open("r+b") as file:
        file.seek(end)
        file.write(b"\x40\0\0\0half a record")
    # Then that is no damage
    found = verify(DiskFiles(tmp_path))
    assert found.is_good
    assert found.torn_file == file_name(1)
    # and what was answered is there
    assert await bodies(tmp_path) == [b"first", b"second"]
    # and after the start there is no trace of it
    assert verify(DiskFiles(tmp_path)).torn_file is None


@pytest.mark.parametrize("cut", [1, 20, 33])
async def test_a_last_write_that_did_not_reach_the_disk_is_gone_and_the_rest_is_there(
    tmp_path: Path, cut: int
) -> None:
    end = await killed_store(tmp_path)
    with (tmp_path / file_name(1)).open("r+b") as file:
        file.truncate(end - cut)
    assert await bodies(tmp_path) == [b"first"]


async def test_a_delivery_that_a_power_loss_took_shares_its_receipt_with_no_other(
    tmp_path: Path,
) -> None:
    # Given a delivery of which the disk knows nothing
    directory, copy = tmp_path / "data", tmp_path / "copy"
    async with penstock.open(directory, sync="interval") as broker:
        await broker.create_queue("plums")
        await broker.publish("plums", [b"one"])
        shutil.copytree(directory, copy)
        (forgotten,) = await broker.receive("plums")
    # When the store is opened as the disk has it, and the message goes to somebody else
    async with penstock.open(copy, sync="interval") as broker:
        (delivery,) = await broker.receive("plums")
        # Then the first one's receipt does not settle it
        assert await broker.ack("plums", [forgotten.receipt]) == [penstock.Outcome.NOT_LEASED]
        assert await broker.ack("plums", [delivery.receipt]) == [penstock.Outcome.DONE]


async def test_not_even_a_second_power_loss_gives_a_receipt_twice(tmp_path: Path) -> None:
    # Given two starts after a crash, of which each forgets a delivery
    receipts = []
    directory = tmp_path / "data"
    async with penstock.open(directory, sync="interval") as broker:
        await broker.create_queue("plums")
        await broker.publish("plums", [b"one"])
        shutil.copytree(directory, tmp_path / "0")
    # When the message is delivered each time
    for start in range(3):
        async with penstock.open(tmp_path / str(start), sync="interval") as broker:
            shutil.copytree(tmp_path / str(start), tmp_path / str(start + 1))
            (delivery,) = await broker.receive("plums")
            receipts.append(delivery.receipt)
    # Then it was under another receipt each time
    assert len(set(receipts)) == 3

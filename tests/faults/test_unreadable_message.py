"""A message that cannot be read does not hold up those that are received with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.errors import CorruptLog
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.segment import file_name
from penstock.storage.wal.store import WalStore
from tests.contract.clock import ManualClock


async def open_broker(path: Path, clock: ManualClock) -> Broker:
    return Broker(await WalStore.open(DiskFiles(path), clock=clock, cache_bytes=0))


def damage(path: Path, body: bytes) -> None:
    segment = path / file_name(1)
    data = bytearray(segment.read_bytes())
    data[data.index(body)] ^= 1
    segment.write_bytes(data)


async def test_the_others_are_delivered_and_it_becomes_a_dead_letter(tmp_path: Path) -> None:
    # Given three publishes, of which the second is damaged while the store is open
    clock = ManualClock()
    async with await open_broker(tmp_path, clock) as broker:
        await broker.create_queue("jobs")
        await broker.alter_subscription("jobs", "default", max_deliveries=2, lease_seconds=10)
        for body in (b"AAAA", b"BBBB", b"CCCC"):
            await broker.publish("jobs", [body])
        damage(tmp_path, b"BBBB")

        # When they are received together
        deliveries = await broker.receive("jobs", limit=3)

        # Then those that can be read are there
        assert [delivery.body for delivery in deliveries] == [b"AAAA", b"CCCC"]
        await broker.ack("jobs", deliveries)
        # and the other says so when it is alone, until it has failed too often.
        clock.advance(11)
        with pytest.raises(CorruptLog):
            await broker.receive("jobs", limit=3)
        clock.advance(11)
        assert await broker.receive("jobs", limit=3) == []
        assert (await broker.queue_stats("jobs")).dead_letters == 1

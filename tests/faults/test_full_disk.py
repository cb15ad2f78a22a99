"""A full disk: publishes are refused, acks go through, nothing that was accepted is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from penstock.broker import Broker
from penstock.core.publishing import prepare
from penstock.core.settling import Outcome
from penstock.errors import DiskFull
from penstock.storage.wal.committer import GroupCommitter
from penstock.storage.wal.log import Log
from penstock.storage.wal.store import WalStore
from tests.faults.files import FULL_DISK, FaultyFiles, no_fault
from tests.faults.store import SEGMENT_BYTES, broker_on, open_store
from tests.simulation.files import SimulatedFiles

SMALL_SEGMENT = 256 * 1024

BODY = b"x" * 200

T = TypeVar("T")


async def fill(broker: Broker, body: bytes = BODY) -> int:
    """Publish until it is refused; how many were accepted."""
    for accepted in range(1000):
        try:
            await broker.publish("orders", [body])
        except DiskFull:
            return accepted
    raise AssertionError("a disk without space took everything")


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    return FaultyFiles(tmp_path / "data")


async def test_a_publish_on_a_full_disk_is_refused_and_says_what_to_do(files: FaultyFiles) -> None:
    # Given a store that has what space it needs
    async with broker_on(files) as broker:
        await broker.create_queue("orders")
        await broker.publish("orders", [BODY])
        # When the disk is full
        files.fault = FULL_DISK
        await fill(broker)
        # Then publishes are refused, again and again
        for _ in range(3):
            with pytest.raises(DiskFull, match="free some") as refusal:
                await broker.publish("orders", [BODY])
            assert refusal.value.code == "disk_full"


async def test_acks_go_through_on_a_full_disk_and_all_that_was_accepted_can_be_read(
    files: FaultyFiles,
) -> None:
    async with broker_on(files) as broker:
        # Given a disk that ran full
        await broker.create_queue("orders")
        files.fault = FULL_DISK
        accepted = await fill(broker)
        assert accepted > 5
        # Then messages can be received and acked
        deliveries = await broker.receive("orders", limit=5)
        assert [d.body for d in deliveries] == [BODY] * 5
        assert await broker.ack("orders", [d.receipt for d in deliveries]) == [Outcome.DONE] * 5
        # and all of them can be read
        assert len(await broker.read("orders", 0, 1000)) == accepted


async def test_publishing_works_again_once_there_is_space(files: FaultyFiles) -> None:
    async with broker_on(files) as broker:
        # Given a disk that ran full
        await broker.create_queue("orders")
        files.fault = FULL_DISK
        accepted = await fill(broker)
        # When space is freed
        files.fault = no_fault
        # Then the store goes on by itself
        for _ in range(50):
            await broker.publish("orders", [BODY])
        assert len(await broker.read("orders", 0, 1000)) == accepted + 50


async def test_settling_works_again_once_there_is_space_though_nobody_publishes(
    files: FaultyFiles,
) -> None:
    # Given a disk that is so full that nothing more can be noted
    store = await open_store(files)
    async with Broker(store) as broker:
        await broker.create_queue("orders")
        files.fault = FULL_DISK
        await fill(broker)
        given = await broker.receive("orders", limit=1000)
        with suppress(DiskFull):
            for _ in range(1000):
                await broker.extend("orders", given, 60)
        with pytest.raises(DiskFull):
            await broker.ack("orders", given)
        with pytest.raises(DiskFull):
            await store.tick()
        # When there is space, and the regular work is done
        files.fault = no_fault
        await store.tick()
        # Then it is found
        assert await broker.ack("orders", given) == [Outcome.DONE] * len(given)


async def test_a_store_closed_on_a_full_disk_opens_with_everything(files: FaultyFiles) -> None:
    # Given a store that was closed while the disk was full
    broker = Broker(await open_store(files))
    await broker.create_queue("orders")
    files.fault = FULL_DISK
    accepted = await fill(broker)
    [delivery] = await broker.receive("orders")
    await broker.ack("orders", [delivery.receipt])
    await broker.close()
    # When it is opened, the disk still being full
    async with broker_on(files) as broker:
        # Then all is there, and the ack too
        assert len(await broker.read("orders", 0, 1000)) == accepted
        assert [d.index for d in await broker.receive("orders")] == [1]


async def test_a_new_store_on_a_full_disk_is_refused(files: FaultyFiles) -> None:
    files.fault = FULL_DISK
    with pytest.raises(DiskFull, match="no disk space"):
        await open_store(files)


async def test_a_full_disk_recovers_by_itself_once_consumers_have_caught_up() -> None:
    # Given a disk that only holds a few segments, and a queue that keeps no history
    files = SimulatedFiles(Random(1))
    files.capacity_bytes = 5 * SMALL_SEGMENT
    store = await WalStore.open(files, segment_bytes=SMALL_SEGMENT)
    async with Broker(store) as broker:
        await broker.create_queue("orders", retention_messages=0)
        # When it is filled until a publish is refused, several times over
        for _ in range(3):
            accepted = await fill(broker, bytes(4000))
            assert accepted > 0
            # And everything is consumed, one message at a time, while the regular work goes on
            for number in range(accepted):
                [delivery] = await broker.receive("orders")
                await broker.ack("orders", [delivery])
                if number % 10 == 9:
                    with suppress(DiskFull):
                        await store.tick()
            # Then the space is there again
            await store.tick()
            assert broker.problem is None
        assert (await broker.queue_stats("orders")).messages == 0


class Interposed(GroupCommitter):
    """Something comes in between the answer of a call and who waits for it."""

    then: Callable[[], None] | None = None

    async def call(self, function: Callable[[], T]) -> T:
        result = await super().call(function)
        then, self.then = self.then, None
        if then is not None:
            then()
        return result


async def test_a_checkpoint_whose_space_was_taken_by_others_leaves_the_store_intact(
    files: FaultyFiles,
) -> None:
    committers: list[Interposed] = []

    def interposed(log: Log) -> Interposed:
        committers.append(Interposed(log))
        return committers[0]

    store = await WalStore.open(files, segment_bytes=SEGMENT_BYTES, committer=interposed)
    async with Broker(store) as broker:
        # Given a disk that has no more than the spare segment
        await broker.create_queue("orders")
        await broker.publish("orders", [bytes(2000)])
        files.fault = FULL_DISK

        # When a publish takes it just before a checkpoint begins a new segment
        def publish() -> None:
            store.publish("orders", prepare([bytes(2500)]))
            store._publishes.flush()

        committers[0].then = publish
        with pytest.raises(DiskFull):
            await store.checkpoint()
        # Then there is no checkpoint for now, and that is all
        assert broker.problem is None
        [first, second] = await broker.receive("orders", limit=2)
        assert await broker.ack("orders", [first, second]) == [Outcome.DONE] * 2

"""What the pages claim, where no other suite shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from penstock import NewMessage
from penstock.broker import Broker
from penstock.errors import QueueNotFound, UnknownBackend
from penstock.storage.memory import MemoryStore
from penstock.storage.registry import open_store
from penstock.storage.wal.committer import GroupCommitter
from penstock.storage.wal.files import DiskFiles, WritableFile
from penstock.storage.wal.store import WalStore
from tests.contract.clock import ManualClock


class CountingFiles(DiskFiles):
    """Counts the reads of records."""

    reads = 0

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        self.reads += 1
        return super().read_at(name, offset, size)

    def read_at_nowait(self, name: str, offset: int, size: int) -> bytearray | None:
        self.reads += 1
        return super().read_at_nowait(name, offset, size)


class SlowFile(WritableFile):
    """Its writes end only once `may_go` is set; without that they fail."""

    def __init__(self, file: WritableFile, may_go: Event) -> None:
        self._file = file
        self._may_go = may_go

    def write_at(self, offset: int, buffers: Sequence[bytes], *, sync: bool = False) -> None:
        if not self._may_go.wait(timeout=10):
            raise OSError("the event loop never came to let the write go")
        self._file.write_at(offset, buffers, sync=sync)

    def sync(self) -> None:
        self._file.sync()

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


class SlowFiles(DiskFiles):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_go = Event()
        self.may_go.set()

    def create(self, name: str) -> WritableFile:
        return SlowFile(super().create(name), self.may_go)


async def pending(broker: Broker) -> int:
    [stats] = (await broker.queue_stats("tenant")).subscriptions
    return stats.ready + stats.in_flight + stats.delayed + stats.parked + stats.held


@pytest.mark.parametrize(
    ("url", "durability"), [("memory:", "memory"), ("wal:{}", "fsync"), ("{}", "fsync")]
)
async def test_the_url_alone_chooses_the_backend(url: str, durability: str, tmp_path: Path) -> None:
    async with Broker(await open_store(url.format(tmp_path / "data"))) as broker:
        await broker.create_queue("tenant")
        result = await broker.publish("tenant", [b"a"])
        assert result.durability == durability
        assert [delivery.body for delivery in await broker.receive("tenant")] == [b"a"]


@pytest.mark.parametrize("url", ["kafka:localhost", "wal:"])
async def test_an_unknown_url_is_refused(url: str) -> None:
    with pytest.raises(UnknownBackend):
        await open_store(url)


async def test_a_publish_needs_its_queue() -> None:
    async with Broker(MemoryStore()) as broker:
        with pytest.raises(QueueNotFound):
            await broker.publish("tenant", [b"a"])


async def test_a_message_does_not_change() -> None:
    async with Broker(MemoryStore()) as broker:
        await broker.create_queue("tenant")
        await broker.publish("tenant", [NewMessage(body=b"a")])
        [message] = await broker.read("tenant")
        with pytest.raises(AttributeError):
            message.body = b"b"  # type: ignore[misc]


async def test_what_was_consumed_can_be_read_until_retention_takes_it() -> None:
    # Given a message that was acked
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Broker(store) as broker:
        await broker.create_queue("tenant", retention_seconds=60)
        await broker.publish("tenant", [b"a"])
        await broker.ack("tenant", await broker.receive("tenant"))
        # When some of its time has passed, then it is still there
        clock.advance(59)
        await store.tick()
        assert [message.body for message in await broker.read("tenant")] == [b"a"]
        # When all of it has, then it is gone
        clock.advance(2)
        await store.tick()
        assert await broker.read("tenant") == []


async def test_dead_letters_may_have_a_time_to_live() -> None:
    # Given a dead letter in a queue of letters that live a minute
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Broker(store) as broker:
        await broker.create_queue("tenant")
        await broker.alter_subscription("tenant", "default", max_deliveries=1)
        await broker.publish("tenant", [b"a"])
        clock.advance(3600)
        await broker.nack("tenant", await broker.receive("tenant"))
        await broker.alter_queue("tenant-dlq", message_ttl_seconds=60)
        # When less than that has passed since it failed, then it is there
        clock.advance(59)
        await store.tick()
        assert len(await broker.dead_letters("tenant")) == 1
        # When more has, then it is gone, and counted
        clock.advance(2)
        await store.tick()
        assert await broker.dead_letters("tenant") == []
        [letters] = (await broker.queue_stats("tenant-dlq")).subscriptions
        assert letters.expired == 1


async def test_what_is_published_is_pending_until_it_is_consumed() -> None:
    async with Broker(MemoryStore()) as broker:
        await broker.create_queue("tenant")
        await broker.publish("tenant", [b"%d" % number for number in range(10)])
        assert await pending(broker) == 10
        await broker.ack("tenant", await broker.receive("tenant", limit=10))
        assert await pending(broker) == 0


async def test_what_a_consumer_had_when_it_died_is_delivered_again(tmp_path: Path) -> None:
    # Given a consumer that has five messages and never acks them
    clock = ManualClock()
    path = str(tmp_path / "data")
    async with Broker(await open_store(path, clock=clock)) as broker:
        await broker.create_queue("tenant")
        await broker.publish("tenant", [b"%d" % number for number in range(5)])
        assert len(await broker.receive("tenant", limit=5)) == 5
    # When everything starts anew and the lease is over
    clock.advance(30)
    async with Broker(await open_store(path, clock=clock)) as broker:
        again = await broker.receive("tenant", limit=5)
        # Then they come again, and are known to have been delivered before
        assert [(delivery.index, delivery.deliveries) for delivery in again] == [
            (number, 2) for number in range(5)
        ]


async def test_queues_have_indexes_and_retention_of_their_own() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Broker(store) as broker:
        # Given two queues, one of which keeps history for less long
        await broker.create_queue("short", retention_seconds=10)
        await broker.create_queue("long", retention_seconds=1000)
        for queue in ("short", "long"):
            result = await broker.publish(queue, [queue.encode()])
            assert [message.index for message in result] == [0]
            [delivery] = await broker.receive(queue)
            assert delivery.body == queue.encode()
            await broker.ack(queue, [delivery])
        # When that time is over, then only its own messages are gone
        clock.advance(20)
        await store.tick()
        assert await broker.read("short") == []
        assert [message.body for message in await broker.read("long")] == [b"long"]


@pytest.mark.parametrize(("cache_bytes", "reads_files"), [(2**20, False), (0, True)])
async def test_the_newest_messages_are_delivered_from_memory(
    cache_bytes: int, reads_files: bool, tmp_path: Path
) -> None:
    files = CountingFiles(tmp_path / "data")
    store = await WalStore.open(files, cache_bytes=cache_bytes, segment_bytes=2**16)
    async with Broker(store) as broker:
        await broker.create_queue("tenant")
        # The cache keeps one record whatever its bound, so the first of two is the one to look at.
        await broker.publish("tenant", [b"a"])
        await broker.publish("tenant", [b"b"])
        files.reads = 0
        assert [delivery.body for delivery in await broker.receive("tenant")] == [b"a"]
        assert (files.reads > 0) is reads_files


async def test_a_body_is_stored_once_however_many_read_and_retry_it(tmp_path: Path) -> None:
    async with Broker(await open_store(str(tmp_path / "data"), segment_bytes=2**16)) as broker:
        await broker.create_queue("tenant")
        for name in ("a", "b"):
            await broker.create_subscription("tenant", name, max_deliveries=2)
        await broker.publish("tenant", [b"the only copy of it"])
        for name in ("a", "b"):
            for _ in range(2):  # the second time it becomes a dead letter
                deliveries = await broker.receive("tenant", subscription=name)
                await broker.nack("tenant", deliveries, name)
        assert len(await broker.dead_letters("tenant")) == 2
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("*.log"))
        assert stored.count(b"the only copy of it") == 1


async def test_the_event_loop_runs_on_while_the_disk_is_busy(tmp_path: Path) -> None:
    # Given a disk that finishes a write only when the event loop lets it
    files = SlowFiles(tmp_path / "data")
    store = await WalStore.open(
        files, segment_bytes=2**16, committer=partial(GroupCommitter, inline_bytes=1000)
    )
    async with Broker(store) as broker:
        await broker.create_queue("tenant")
        files.may_go.clear()
        publish = asyncio.create_task(broker.publish("tenant", [bytes(1000)]))
        # When the loop has gone round some times, then the publish is not answered yet
        for _ in range(10):
            await asyncio.sleep(0)
        assert not publish.done()
        # When it lets the write go, then it is
        files.may_go.set()
        assert (await publish).durability == "fsync"

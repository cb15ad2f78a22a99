"""Reading messages back from the log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.errors import CorruptLog, StorageError
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.journal import WalJournal
from penstock.storage.wal.log import Log
from tests.faults.store import open_store
from tests.simulation.committer import InlineCommitter
from tests.simulation.files import SimulatedFiles
from tests.unit.wal.logs import KIND, SEGMENT_BYTES, open_log


class FailingReads(DiskFiles):
    """A directory whose reads fail while `error` is set."""

    error: int | None = None

    def read_at_nowait(self, name: str, offset: int, size: int) -> bytearray | None:
        self._fail()
        return super().read_at_nowait(name, offset, size)

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        self._fail()
        return super().read_at(name, offset, size)

    def _fail(self) -> None:
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))


class FailingBlockingReads(FailingReads):
    """As where nothing can be read without waiting for the disk."""

    def read_at_nowait(self, name: str, offset: int, size: int) -> bytearray | None:
        return None


@pytest.fixture(params=[FailingReads, FailingBlockingReads])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FailingReads:
    kind: type[FailingReads] = request.param
    return kind(tmp_path)


async def make_backlog(broker: Broker) -> None:
    await broker.create_queue("q")
    for body in (b"a", b"b"):  # the journal always remembers the last one
        await broker.publish("q", [body])


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO, errno.EACCES])
async def test_a_read_that_fails_for_now_is_no_damage(files: FailingReads, error: int) -> None:
    async with Broker(await open_store(files)) as broker:
        await make_backlog(broker)
        # When the system cannot read just now
        files.error = error
        with pytest.raises(StorageError, match="try again") as caught:
            await broker.read("q", 0, 1)
        assert not isinstance(caught.value, CorruptLog)
        # Then it can be read later
        files.error = None
        assert [message.body for message in await broker.read("q", 0, 1)] == [b"a"]


async def test_a_file_that_is_missing_is_damage(files: FailingReads) -> None:
    async with Broker(await open_store(files)) as broker:
        await make_backlog(broker)
        files.error = errno.ENOENT
        with pytest.raises(CorruptLog, match="repair"):
            await broker.read("q", 0, 1)
        files.error = None


def journal_of(log: Log, files: SimulatedFiles) -> WalJournal:
    return WalJournal(log=log, committer=InlineCommitter(log), files=files, cache_bytes=0)


def test_once_the_disk_is_full_half_a_segment_is_kept_for_acks_whatever_was_counted_before(
    simulated: SimulatedFiles,
) -> None:
    # Given a journal that has counted its room when there was a spare segment
    simulated.capacity_bytes = 2 * SEGMENT_BYTES
    log = open_log(simulated)
    journal = journal_of(log, simulated)
    assert journal.has_room(SEGMENT_BYTES * 3 // 4)
    # When that is in use, and there is no other
    log.append(KIND, bytes(SEGMENT_BYTES // 2))
    log.append(KIND, bytes(SEGMENT_BYTES // 2))
    log.commit()
    log.prepare()
    assert log.is_disk_full
    # Then it has no room, but for acks
    assert not journal.has_room(100)
    assert journal.has_settle_room(100)


def test_the_room_of_a_segment_that_was_left_is_not_that_of_the_next(
    simulated: SimulatedFiles,
) -> None:
    # Given room for a message that takes more than a segment
    log = open_log(simulated)
    journal = journal_of(log, simulated)
    log.append(KIND, b"before")
    log.reserve(3 * SEGMENT_BYTES)
    assert journal.has_room(2 * SEGMENT_BYTES)
    # When the space is used for a segment of the ordinary size
    assert journal.roll() == 2
    # Then it is to be sought anew
    assert not journal.has_room(2 * SEGMENT_BYTES)

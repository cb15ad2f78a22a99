"""Reading messages back from the log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.errors import CorruptLog, StorageError
from penstock.storage.wal.files import DiskFiles
from tests.faults.store import open_store


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

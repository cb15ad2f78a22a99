"""What an answer waits for."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

from penstock.broker import Broker
from penstock.storage.wal.committer import GroupCommitter
from penstock.storage.wal.files import DiskFiles, WritableFile
from penstock.storage.wal.store import WalStore

PATIENCE_SECONDS = 10

# Of the loop. It takes three to answer what need not wait.
_TURNS = 20


class SlowSyncs(DiskFiles):
    """From when it is told to, the syncs of segments wait until they may go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_slow = False
        self.is_syncing = threading.Event()
        self.may_sync = threading.Event()

    def create(self, name: str) -> WritableFile:
        file = super().create(name)
        sync = file.sync

        def wait_and_sync() -> None:
            if self.is_slow:
                self.is_syncing.set()
                assert self.may_sync.wait(PATIENCE_SECONDS)
            sync()

        file.sync = wait_and_sync  # type: ignore[method-assign]
        return file


async def test_a_repeated_publish_is_answered_no_earlier_than_the_first_one(
    tmp_path: Path,
) -> None:
    files = SlowSyncs(tmp_path)
    in_thread = partial(GroupCommitter, inline_bytes=0)
    async with Broker(await WalStore.open(files, committer=in_thread)) as broker:
        await broker.create_queue("q")
        # Given a publish that is written, and being synced
        files.is_slow = True
        first = asyncio.create_task(broker.publish("q", [b"x"], idempotency_key="key"))
        assert await asyncio.to_thread(files.is_syncing.wait, PATIENCE_SECONDS)
        # When it is sent once more, which adds nothing to the log
        again = asyncio.create_task(broker.publish("q", [b"x"], idempotency_key="key"))
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        is_early = again.done()
        files.may_sync.set()
        # Then that one waits for the sync, too
        assert not is_early
        assert list((await again).indexes) == list((await first).indexes)


async def test_what_is_ensured_is_answered_no_earlier_than_who_made_it(tmp_path: Path) -> None:
    files = SlowSyncs(tmp_path)
    in_thread = partial(GroupCommitter, inline_bytes=0)
    async with Broker(await WalStore.open(files, committer=in_thread)) as broker:
        # Given a queue that is written, and being synced
        files.is_slow = True
        first = asyncio.create_task(broker.ensure_queue("q"))
        assert await asyncio.to_thread(files.is_syncing.wait, PATIENCE_SECONDS)
        # When another one wants it, too
        again = asyncio.create_task(broker.ensure_queue("q"))
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        is_early = again.done()
        files.may_sync.set()
        # Then it is not told of a queue that a power loss could still take
        assert not is_early
        assert ((await first).is_new, (await again).is_new) == (True, False)

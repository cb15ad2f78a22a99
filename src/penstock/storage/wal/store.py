"""The WAL backend: the machine, a log of its events, and checkpoints that keep recovery short."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import TypeVar

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.core.events import EpochsSkipped
from penstock.core.machine import Machine
from penstock.core.snapshot import take_snapshot
from penstock.errors import DiskFull, PenstockError, StorageError
from penstock.storage.embedded import EmbeddedStore
from penstock.storage.wal import compaction
from penstock.storage.wal.blank import blank_machine
from penstock.storage.wal.checkpoint import (
    Checkpoint,
    SegmentIndex,
    checkpoint_name,
    encode,
    index_name,
    numbers_of,
    save,
    segment_index,
)
from penstock.storage.wal.committer import Committer, GroupCommitter
from penstock.storage.wal.compaction import SPARSE
from penstock.storage.wal.files import TEMPORARY_SUFFIX, Files
from penstock.storage.wal.journal import WalJournal
from penstock.storage.wal.log import DEFAULT_SEGMENT_BYTES, Log, SyncMode
from penstock.storage.wal.recovery import recover
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    file_name,
    read_header,
    segment_numbers,
    segment_of,
)

__all__ = ["DEFAULT_CACHE_BYTES", "WalStore"]

DEFAULT_CACHE_BYTES = 32 * 2**20
_SKIP_BYTES = 64

T = TypeVar("T")

logger = logging.getLogger(__name__)


class WalStore(EmbeddedStore):
    """A data directory. Use `WalStore.open`; one process at a time owns a directory."""

    def __init__(
        self,
        *,
        files: Files,
        log: Log,
        committer: Committer,
        journal: WalJournal,
        machine: Machine,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        super().__init__(machine=machine, journal=journal, clock=clock)
        self._files = files
        self._log = log
        self._committer = committer
        self._wal = journal
        self._random_bytes = random_bytes
        self._segments: list[int] = []  # older than the last checkpoint, and still needed
        self._checkpointed = 0  # the segment that follows the last checkpoint
        self._checkpointing = asyncio.Lock()
        self.replayed_events = 0

    @classmethod
    async def open(
        cls,
        files: Files,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
        sync: SyncMode = SyncMode.ALWAYS,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        committer: Callable[[Log], Committer] = GroupCommitter,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> WalStore:
        """Recover the state of the directory, and continue from there.

        Raises `DirectoryLocked`, `CorruptLog`, `NewerFormat` or `DiskFull`.
        """
        if sys.byteorder != "little":
            raise StorageError("the files of the log are little-endian, and this machine is not")
        machine = blank_machine(rng or Random())
        files.lock()
        try:
            found = recover(files, machine)
            log = Log.open(
                files,
                replay=found.replay,
                segment_bytes=segment_bytes,
                sync_mode=sync,
                random_bytes=random_bytes,
            )
        except BaseException:
            files.unlock()
            raise
        writer = committer(log)
        journal = WalJournal(log=log, committer=writer, files=files, cache_bytes=cache_bytes)
        machine.journal = journal
        store = cls(
            files=files,
            log=log,
            committer=writer,
            journal=journal,
            machine=machine,
            clock=clock or SystemClock(),
            random_bytes=random_bytes,
        )
        store.replayed_events = found.replayed
        if found.checkpoint is not None:
            store._segments = list(found.checkpoint.segments)
            store._checkpointed = found.checkpoint.segment
            journal.packs = dict(found.checkpoint.packs)
        try:
            if not found.replay.closed:
                await store._skip_epochs()
            await store._on_disk(store._sweep)
        except BaseException:
            # Or the directory stays locked. Not awaited, since this may be a cancellation.
            store._closing = asyncio.get_running_loop().create_task(store._close())
            raise
        return store

    async def _skip_epochs(self) -> None:
        """Skip the epochs of deliveries that were answered and then lost to a power loss.

        In every mode, this is durable before any new delivery is, so that the next crash cannot
        reuse the same epochs.
        """
        event = EpochsSkipped(at_ns=self.machine.now_ns)
        if not self.machine.subscriptions:
            return
        if not self._wal.has_settle_room(_SKIP_BYTES):
            self.machine.apply(event)  # on a full disk, no delivery can be stored either
            return
        self.machine.emit(event)
        await self._on_disk(self._log.sync)

    async def tick(self) -> None:
        if self._log.is_disk_full:
            with suppress(DiskFull):
                await self._on_disk(self._log.reserve)  # some space may have been freed
        with suppress(DiskFull):
            await super().tick()
        if segment_of(self._log.end) > max(self._checkpointed, 1):
            await self.checkpoint()

    async def checkpoint(self) -> None:
        """Save the state, so that recovery need not replay what came before.

        Segments that are no longer needed are removed, and sparse ones packed. If one is under way,
        this waits for it, and saves what has changed since it began.
        """
        async with self._checkpointing:
            await self._checkpoint()
            await self._compact()

    async def _on_disk(self, function: Callable[[], T]) -> T:
        """Run it where commits run. Raises `DiskFull` or `StorageFailed`."""
        return await self._checked(self._committer.call(function))

    async def _beside(self, function: Callable[[], T]) -> T:
        """Run it while commits go on. Raises `DiskFull` or `StorageFailed`."""
        return await self._checked(self._committer.beside(function))

    async def _checked(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except OSError as exc:
            raise self._log.refusal(exc) from exc

    async def _checkpoint(self) -> None:
        machine = self.machine
        try:
            # Starting a segment without space for it would be fatal, so allocate it first.
            await self._on_disk(self._log.reserve)
            while not self._log.has_spare:  # the spare was used up in the meantime
                await self._on_disk(self._log.reserve)
            segment = self._wal.roll()
        except DiskFull:
            live = compaction.live_bytes(machine)
            if all(live.get(number) for number in self._left_behind()):
                raise  # a checkpoint would not help: no segment could be removed
            segment = self._wal.roll(into_own_space=True)
        if segment == self._checkpointed:
            return
        live = compaction.live_bytes(machine)
        sealed = list(range(max(self._checkpointed, 1), segment))
        needed = [number for number in [*self._segments, *sealed] if live.get(number)]
        indexes = {number: segment_index(machine, number) for number in sealed if live.get(number)}
        packs = {number: name for number, name in self._wal.packs.items() if number in needed}
        checkpoint = Checkpoint(
            segment=segment, segments=needed, packs=packs, machine=take_snapshot(machine)
        )

        def seal() -> None:
            for number in sealed:
                self._seal(number)

        def write() -> None:
            for number, index in indexes.items():
                self._save_index(number, file_name(number), index)
            save(self._files, checkpoint_name(segment), encode(checkpoint))

        # What the checkpoint has counted in is durable before it is.
        await self._on_disk(seal)
        await self._beside(write)
        self._segments = needed
        self._checkpointed = segment
        self._wal.packs = packs
        await self._on_disk(self._sweep)

    def _save_index(self, number: int, name: str, index: SegmentIndex) -> None:
        header = read_header(self._files.read_at(name, 0, HEADER_BYTES), number=number)
        named = msgspec.structs.replace(index, salt=header.salt)
        save(self._files, index_name(number), encode(named))

    def _left_behind(self) -> list[int]:
        """The segments before the current one."""
        in_use = segment_of(self._log.end)
        return [*self._segments, *range(max(self._checkpointed, 1), in_use)]

    def _seal(self, number: int) -> None:
        """Sync a segment in every mode, because a checkpoint relies on the segments before it."""
        if self._log.sync_mode is not SyncMode.ALWAYS:
            file = self._files.open(file_name(number))
            try:
                file.sync()
            finally:
                file.close()

    def _sweep(self) -> None:
        """Remove what the last checkpoint does not need. After a crash, the next call does it."""
        needed, packs = set(self._segments), set(self._wal.packs.values())
        files = self._files
        gone = [name for name in files.names() if name.endswith(TEMPORARY_SUFFIX)]
        gone += [
            file_name(number)
            for number in segment_numbers(files)
            if number < self._checkpointed and (number not in needed or number in self._wal.packs)
        ]
        gone += [
            index_name(n)
            for n in numbers_of(files, "idx")
            if n < self._checkpointed and n not in needed
        ]
        gone += [checkpoint_name(n) for n in numbers_of(files, "ckpt") if n != self._checkpointed]
        gone += [name for name in compaction.pack_names(files.names()) if name not in packs]
        for name in gone:
            files.remove(name)
        if gone:
            self._log.remove(())  # makes it durable, and lets the log allocate again

    async def _compact(self) -> None:
        """Pack segments of which little is needed. The next checkpoint removes the old files."""
        live = compaction.live_bytes(self.machine)
        for number in self._segments:
            source = self._wal.packs.get(number) or file_name(number)
            size = self._files.size(source)
            # A small file is not worth packing.
            if size >= self._log.segment_bytes / 8 and live.get(number, 0) < size * SPARSE:
                await self._pack(number, source)

    async def _pack(self, number: int, source: str) -> None:
        entries = compaction.live_batches(self.machine, number)
        name = compaction.pack_name(number, self._checkpointed)
        if not entries or name == source:
            return

        moved = await self._beside(
            lambda: compaction.pack(
                self._files,
                source=source,
                name=name,
                segment=number,
                live=entries,
                random_bytes=self._random_bytes,
            )
        )
        self._wal.forget(number)
        compaction.relocate(self.machine, number, moved)
        self._wal.packs[number] = name
        index = segment_index(self.machine, number)
        await self._beside(lambda: self._save_index(number, name, index))

    async def _finish(self) -> None:
        # The log has everything; a checkpoint only makes the next start shorter.
        try:
            if self._log.failure is None:
                async with self._checkpointing:  # wait for one that is under way
                    await self._checkpoint()  # no packing: it would need another checkpoint
        except PenstockError as exc:
            logger.warning("no checkpoint at close: %s", exc)
        except Exception:  # whatever it is, the directory must be let go
            logger.exception("no checkpoint at close")
        try:
            await super()._finish()
        finally:
            self._files.unlock()

"""The machine's journal: writes events to the log, and reads those with messages back."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from penstock.core.events import Event, Published
from penstock.core.machine import Place
from penstock.core.timeline import Places
from penstock.errors import StorageFailed
from penstock.storage.answers import Done
from penstock.storage.base import Durability
from penstock.storage.block import Block
from penstock.storage.wal import codec
from penstock.storage.wal.bulk import failed_read, read_blocks, unreadable
from penstock.storage.wal.committer import Committer
from penstock.storage.wal.files import Files
from penstock.storage.wal.log import RECORD_OVERHEAD_BYTES, Log, SyncMode
from penstock.storage.wal.record import HEADER_BYTES, MARK_BYTES, Ending, Record, decode
from penstock.storage.wal.record_cache import RecordCache
from penstock.storage.wal.segment import file_name, offset_of, segment_of

__all__ = ["WalJournal"]

# Threads that read in bulk. They spend more time in the interpreter than on the disk, so each one
# more would just compete with the event loop.
_BULK_THREADS = 2


class WalJournal:
    """Caches the newest messages in memory, up to ``cache_bytes``; others are read on demand."""

    def __init__(self, *, log: Log, committer: Committer, files: Files, cache_bytes: int) -> None:
        self._log = log
        self._committer = committer
        self._files = files
        self.moves = 0
        self._cache = RecordCache(cache_bytes)
        self.packs: dict[int, str] = {}  # compacted segments, and their files
        self._room = 0  # for messages; counted down to save asking the log each time
        self._segment = 0
        self._bulk = ThreadPoolExecutor(_BULK_THREADS, thread_name_prefix="penstock-log-reader")
        self.durability: Durability = "fsync" if log.sync_mode is SyncMode.ALWAYS else "memory"

    def append(self, event: Event) -> Place:
        kind, parts = codec.encode(event)
        payload = b"".join(parts)
        locator = self._log.append(kind, payload)
        length = HEADER_BYTES + len(payload)
        self._room -= length + MARK_BYTES
        if segment_of(locator) != self._segment:
            self._segment = segment_of(locator)
            self._room = 0  # the spare is in use now, so ask again
        if isinstance(event, Published):
            self._cache.put(locator, payload, event)
        return Place(locator, length)

    def roll(self, *, into_own_space: bool = False) -> int:
        """Start a new segment with the next record, and return its number."""
        self._room = 0  # it was the old segment's
        return self._log.roll(into_own_space=into_own_space)

    @property
    def problem(self) -> str | None:
        failure = self._log.failure
        return None if failure is None else f"a write to the log failed: {failure}"

    def has_room(self, size: int) -> bool:
        needed = size + RECORD_OVERHEAD_BYTES
        if self._room < needed or self._log.is_disk_full:
            # Ask again: on a full disk, more is reserved for acks than when this was counted.
            self._room = self._log.publish_room
        return self._room >= needed

    def has_settle_room(self, size: int) -> bool:
        log = self._log
        return not log.is_disk_full or log.room >= size + RECORD_OVERHEAD_BYTES

    async def make_room(self, size: int) -> None:
        await self._committer.call(lambda: self._log.reserve(2 * size + RECORD_OVERHEAD_BYTES))

    def submit(self) -> asyncio.Future[None] | None:
        log = self._log
        if not log.is_committed or log.failure is not None:
            return self._committer.submit()
        return None

    def call_when_committed(self, done: Done) -> None:
        log = self._log
        if not log.is_committed or log.failure is not None:
            self._committer.call_when_committed(done)
        else:
            done(None)

    def before_commit(self, callback: Callable[[], None], size: int) -> None:
        self._committer.before_commit(callback, size)

    def load_nowait(self, place: Place) -> Event | None:
        is_written = place.locator < self._log.written
        if is_written or self._log.failure is None:
            cached = self._cache.get(place.locator)
            if cached is not None:
                return cached
        if not is_written:
            return None
        name, offset = self._where(place)
        try:
            data = self._files.read_at_nowait(name, offset, place.length)
        except OSError as exc:
            raise failed_read(exc, name, offset) from exc
        if data is None:
            return None
        return self._decoded(place, decode(memoryview(data)), name)

    async def load(self, place: Place) -> Event | None:
        if place.locator >= self._log.written:
            with suppress(StorageFailed):
                await self._committer.submit()
            if place.locator >= self._log.written:
                return None  # its publish failed; everything that was stored can still be read
        name, offset = self._where(place)
        moves = self.moves
        loop = asyncio.get_running_loop()
        try:
            data = await loop.run_in_executor(None, self._files.read_at, name, offset, place.length)
        except OSError as exc:
            raise failed_read(exc, name, offset) from exc
        # If records were moved in the meantime, another may have this position now.
        is_current = moves == self.moves
        return self._decoded(place, decode(memoryview(data)), name, remember=is_current)

    async def load_blocks(self, queue_id: int, places: Places) -> list[Block]:
        count = bisect_left(places.locators, self._log.written)  # the publishes beyond it failed
        locators, lengths = places.locators[:count], places.lengths[:count]
        if not locators:
            return []
        segments = range(segment_of(locators[0]), segment_of(locators[-1]) + 1)
        names = {number: self.packs.get(number) or file_name(number) for number in segments}
        return await asyncio.get_running_loop().run_in_executor(
            self._bulk, read_blocks, self._files, names, locators, lengths, queue_id
        )

    def _where(self, place: Place) -> tuple[str, int]:
        segment = segment_of(place.locator)
        return self.packs.get(segment) or file_name(segment), offset_of(place.locator)

    def _decoded(
        self, place: Place, record: Record | Ending, name: str, *, remember: bool = True
    ) -> Event:
        if isinstance(record, Ending):
            raise unreadable(name, offset_of(place.locator))
        if record.kind != codec.PUBLISHED:
            return codec.decode(record.kind, record.payload)
        event = codec.decode_published(record.payload, with_bodies=True)
        if remember:
            self._cache.put(place.locator, bytes(record.payload), event)
        return event

    def forget(self, segment: int) -> None:
        """Drop a segment's records from the cache, because they are about to move."""
        self.moves += 1
        self._cache.forget(segment)

    async def close(self) -> None:
        await self._committer.stop()
        self._bulk.shutdown(wait=False, cancel_futures=True)
        self._cache.clear()

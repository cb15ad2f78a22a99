"""From a URL to an open store. Besides the server, the only place that names backends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.core.config import check_whole
from penstock.errors import InvalidArgument, StorageError, UnknownBackend
from penstock.shown_url import shown_url
from penstock.storage.base import Store

if TYPE_CHECKING:
    from penstock.storage.mongo.store import ArchivedStore, ArchiveMode
    from penstock.storage.redis.store import RedisStore
    from penstock.storage.wal.files import DiskFiles

__all__ = ["open_archived", "open_store"]

TICK_SECONDS = 1.0
_REDIS = re.compile(r"(rediss?|valkeys?)(\+(sentinel|cluster))?|unix")


async def open_store(
    url: str,
    *,
    sync: str = "always",
    segment_bytes: int | None = None,
    cache_bytes: int | None = None,
    clock: Clock | None = None,
    rng: Random | None = None,
    observe_sync: Callable[[float], None] | None = None,
    archive: str | None = None,
    archive_mode: ArchiveMode = "sync",
) -> Store:
    """Open ``memory:``, ``wal:<directory>``, or just a directory; ``~`` is the home directory.

    Or ``redis://host:port/db?prefix=name``, ``rediss:`` for TLS, ``unix:`` for a socket.
    ``sync`` is ``always``, ``interval`` or ``never``. ``observe_sync`` is called with the duration
    of every disk sync in seconds, from another thread. ``archive`` is ``mongodb://…``, the durable
    record behind Redis. Raises `UnknownBackend`, `StorageError` for a directory that cannot be
    used, and whatever the backend raises when it opens.
    """
    if not isinstance(url, str):
        raise InvalidArgument(f"the store's url is {url!r}: use a text, for example wal:./data")
    scheme, found, rest = url.partition(":")
    if archive is not None and not _REDIS.fullmatch(scheme):
        raise InvalidArgument(
            "an archive is for a store in Redis: use --store redis://..., or leave out --archive"
        )
    if not found or len(scheme) == 1 or scheme.startswith((".", "/", "~")):
        scheme, rest = "wal", url
    if scheme == "memory":
        return _open_memory(clock, rng)
    if scheme == "wal":
        if url.startswith("wal://") and not url.startswith("wal:///"):
            raise UnknownBackend(
                f"{shown_url(url)!r} names a host, and a directory has none: use wal:./data or "
                "wal:/srv/data"
            )
        return await _open_wal(rest, sync, segment_bytes, cache_bytes, clock, rng, observe_sync)
    if _REDIS.fullmatch(scheme):
        if archive is not None:
            store = await open_archived(url, archive, archive_mode, clock, rng)
            store.start_ticking()
            return store
        return await _open_redis(url, clock, rng)
    raise UnknownBackend(
        f"no backend serves {shown_url(url)!r}: use redis://, memory:, wal:<directory>, or the "
        "path of a directory"
    )


async def open_archived(
    url: str,
    archive: str,
    mode: ArchiveMode = "sync",
    clock: Clock | None = None,
    rng: Random | None = None,
) -> ArchivedStore:
    """Redis with its record in MongoDB. Whatever Redis has lost is rebuilt first."""
    from penstock.storage.mongo.store import ArchivedStore

    if not archive.startswith(("mongodb://", "mongodb+srv://")):
        raise UnknownBackend("an archive is in MongoDB: use mongodb://host:port/database")
    return await ArchivedStore.open(await _open_redis(url, clock, rng), archive, mode)


async def _open_redis(url: str, clock: Clock | None, rng: Random | None) -> RedisStore:
    from penstock.storage.redis.store import RedisStore

    store = await RedisStore.open(url, clock=clock, rng=rng)
    store.start_ticking(TICK_SECONDS)
    return store


def _open_memory(clock: Clock | None, rng: Random | None) -> Store:
    from penstock.storage.memory import MemoryStore

    store = MemoryStore(clock=clock, rng=rng)
    store.start_ticking(TICK_SECONDS)
    return store


async def _open_wal(
    path: str,
    sync: str,
    segment_bytes: int | None,
    cache_bytes: int | None,
    clock: Clock | None,
    rng: Random | None,
    observe_sync: Callable[[float], None] | None,
) -> Store:
    from penstock.storage.wal.log import (
        DEFAULT_SEGMENT_BYTES,
        MAX_SEGMENT_BYTES,
        MIN_SEGMENT_BYTES,
        SyncMode,
    )
    from penstock.storage.wal.store import DEFAULT_CACHE_BYTES, WalStore

    if not path:
        raise UnknownBackend("wal: needs a directory, for example wal:./data")
    try:
        mode = SyncMode(sync)
    except ValueError:
        raise InvalidArgument(f"sync is {sync!r}: use always, interval or never") from None
    if segment_bytes is None:
        segment_bytes = DEFAULT_SEGMENT_BYTES
    check_whole("segment_bytes", segment_bytes, MIN_SEGMENT_BYTES)
    if segment_bytes > MAX_SEGMENT_BYTES:
        raise InvalidArgument(
            f"segment_bytes is {segment_bytes}: use {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}"
        )
    if cache_bytes is None:
        cache_bytes = DEFAULT_CACHE_BYTES
    check_whole("cache_bytes", cache_bytes, 0)
    try:
        store = await WalStore.open(
            _disk_files(path, observe_sync),
            clock=clock,
            rng=rng,
            sync=mode,
            segment_bytes=segment_bytes,
            cache_bytes=cache_bytes,
        )
    except OSError as exc:
        raise _unusable(path, exc) from exc
    store.start_ticking(TICK_SECONDS)
    return store


def _disk_files(path: str, observe_sync: Callable[[float], None] | None) -> DiskFiles:
    from penstock.storage.wal.files import DiskFiles

    try:
        return DiskFiles(Path(path).expanduser(), observe_sync=observe_sync)
    except (ValueError, RuntimeError) as exc:  # not a path, or the home of an unknown user
        raise _unusable(path, exc) from exc


def _unusable(path: str, error: Exception) -> StorageError:
    return StorageError(
        f"the data directory {path!r} cannot be used ({error}): choose one that this process may "
        "read and write, or correct its permissions"
    )

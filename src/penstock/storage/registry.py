"""From a URL to an open store. The only place, beside the server, that names a backend."""

from __future__ import annotations

from random import Random

from penstock.clock import Clock
from penstock.errors import InvalidArgument, UnknownBackend
from penstock.storage.base import Store

__all__ = ["open_store"]

TICK_SECONDS = 1.0


async def open_store(
    url: str,
    *,
    sync: str = "always",
    segment_bytes: int | None = None,
    cache_bytes: int | None = None,
    clock: Clock | None = None,
    rng: Random | None = None,
) -> Store:
    """``memory:``, ``wal:<directory>``, or just a directory.

    ``sync`` is ``always``, ``interval`` or ``never``. Raises `UnknownBackend` and whatever the
    backend raises at start.
    """
    scheme, found, rest = url.partition(":")
    if not found or len(scheme) == 1 or scheme.startswith((".", "/")):
        scheme, rest = "wal", url
    if scheme == "memory":
        return _open_memory(clock, rng)
    if scheme == "wal":
        return await _open_wal(rest, sync, segment_bytes, cache_bytes, clock, rng)
    raise UnknownBackend(
        f"no backend serves {url!r}: use memory:, wal:<directory>, or the path of a directory"
    )


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
) -> Store:
    from penstock.storage.wal.files import DiskFiles
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
    if segment_bytes is not None and not MIN_SEGMENT_BYTES <= segment_bytes <= MAX_SEGMENT_BYTES:
        raise InvalidArgument(
            f"segment_bytes is {segment_bytes}: use {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}"
        )
    store = await WalStore.open(
        DiskFiles(path),
        clock=clock,
        rng=rng,
        sync=mode,
        segment_bytes=segment_bytes or DEFAULT_SEGMENT_BYTES,
        cache_bytes=DEFAULT_CACHE_BYTES if cache_bytes is None else cache_bytes,
    )
    store.start_ticking(TICK_SECONDS)
    return store

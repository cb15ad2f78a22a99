"""The backends under contract, and what sets each apart: flags, never its class."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from penstock.clock import Clock
from penstock.storage.base import Durability, Store
from penstock.storage.memory import MemoryStore
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore

__all__ = ["BACKENDS", "Backend", "TickingStore"]


class TickingStore(Store, Protocol):
    """A store whose regular work a test does by hand, when it has moved the clock."""

    async def tick(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """How to open a store in a directory, and what it promises.

    - `survives_restart`: what was answered is there after the store was closed and opened again.
    - `restarts_always`: it is opened anew before every call, so no call can wait for another.
    """

    name: str
    durability: Durability
    survives_restart: bool
    restarts_always: bool
    open: Callable[[Path, Clock, Random], Awaitable[TickingStore]]
    restart: Callable[[TickingStore, Path, Clock, Random], Awaitable[TickingStore]]


async def _open_memory(directory: Path, clock: Clock, rng: Random) -> TickingStore:
    return MemoryStore(clock=clock, rng=rng)


async def _open_wal(directory: Path, clock: Clock, rng: Random) -> TickingStore:
    # Small segments, so that a test comes across their borders.
    return await WalStore.open(DiskFiles(directory), clock=clock, rng=rng, segment_bytes=64 * 1024)


async def _no_restart(
    store: TickingStore, directory: Path, clock: Clock, rng: Random
) -> TickingStore:
    raise AssertionError("this backend keeps nothing")


async def _reopen_wal(
    store: TickingStore, directory: Path, clock: Clock, rng: Random
) -> TickingStore:
    await store.close()
    return await _open_wal(directory, clock, rng)


async def _recover_wal(
    store: TickingStore, directory: Path, clock: Clock, rng: Random
) -> TickingStore:
    """What is on the disk now, and nothing that a tidy close would add to it."""
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    await store.close()
    shutil.rmtree(directory)
    copy.rename(directory)
    return await _open_wal(directory, clock, rng)


BACKENDS = (
    Backend(
        name="memory",
        durability="memory",
        survives_restart=False,
        restarts_always=False,
        open=_open_memory,
        restart=_no_restart,
    ),
    Backend(
        name="wal",
        durability="fsync",
        survives_restart=True,
        restarts_always=False,
        open=_open_wal,
        restart=_reopen_wal,
    ),
    Backend(
        name="wal-reopened-before-each-call",
        durability="fsync",
        survives_restart=True,
        restarts_always=True,
        open=_open_wal,
        restart=_reopen_wal,
    ),
    Backend(
        name="wal-recovered-before-each-call",
        durability="fsync",
        survives_restart=True,
        restarts_always=True,
        open=_open_wal,
        restart=_recover_wal,
    ),
)

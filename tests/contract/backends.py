"""The backends under contract, and what sets each apart: flags, never its class."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from penstock.clock import Clock
from penstock.storage.base import Durability, Store
from penstock.storage.memory import MemoryStore
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore
from tests.mongo_server import mongo_url, remove_database, with_database
from tests.redis_cluster import cluster_url, remove_cluster_keys
from tests.redis_server import redis_url, remove_keys, unique_prefix, with_prefix

__all__ = ["BACKENDS", "Backend", "TickingStore"]


class TickingStore(Store, Protocol):
    """A store whose regular work a test does by hand, when it has moved the clock."""

    async def tick(self) -> None: ...


Open = Callable[[Path, Clock, Random], Awaitable[TickingStore]]
Restart = Callable[[TickingStore, Path, Clock, Random], Awaitable[TickingStore]]


@dataclass(frozen=True, kw_only=True)
class Backend:
    """How to open a store in a directory, and what it promises.

    - `survives_restart`: what was answered is there after the store was closed and opened again.
    - `restarts_always`: it is opened anew before every call, so no call can wait for another.
    - `has_a_log`: a directory of its own, with the log of its events.
    - `modules`: the parts of the suite that it is put through, if not all: a cluster and an archive
      do most of it as one Redis does, which goes through all of them, and take more time for it.
    """

    name: str
    durability: Durability
    survives_restart: bool
    restarts_always: bool
    open: Open
    restart: Restart
    has_a_log: bool = False
    modules: frozenset[str] | None = None
    remove: Callable[[Path], Awaitable[None]] | None = None


async def _open_memory(directory: Path, clock: Clock, rng: Random) -> TickingStore:
    return MemoryStore(clock=clock, rng=rng)


async def _open_wal(directory: Path, clock: Clock, rng: Random) -> TickingStore:
    # Small segments, so that a test comes across their borders.
    return await WalStore.open(DiskFiles(directory), clock=clock, rng=rng, segment_bytes=64 * 1024)


async def _no_restart(
    store: TickingStore, directory: Path, clock: Clock, rng: Random
) -> TickingStore:
    raise AssertionError("this backend keeps nothing")


def _reopening(open: Open) -> Restart:
    async def restart(
        store: TickingStore, directory: Path, clock: Clock, rng: Random
    ) -> TickingStore:
        await store.close()
        return await open(directory, clock, rng)

    return restart


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


def _redis_address(directory: Path) -> str:
    return with_prefix(redis_url(), unique_prefix(directory))


async def _open_redis(directory: Path, clock: Clock, rng: Random) -> TickingStore:
    return await RedisStore.open(_redis_address(directory), clock=clock, rng=rng)


async def _remove_redis(directory: Path) -> None:
    for server in _other_servers.pop(directory, ()):
        await server.close()
    await remove_keys(redis_url(), unique_prefix(directory))


# Of each test, the server that did not get the last call.
_other_servers: dict[Path, list[TickingStore]] = {}


async def _other_redis_server(
    store: TickingStore, directory: Path, clock: Clock, rng: Random
) -> TickingStore:
    """Two servers over one Redis, each of which gets every other call."""
    waiting = _other_servers.setdefault(directory, [])
    other = waiting.pop() if waiting else await _open_redis(directory, clock, rng)
    waiting.append(store)
    return other


def _cluster_address(directory: Path) -> str:
    return with_prefix(cluster_url(), unique_prefix(directory))


async def _open_cluster(directory: Path, clock: Clock, rng: Random) -> TickingStore:
    return await RedisStore.open(_cluster_address(directory), clock=clock, rng=rng)


async def _remove_cluster(directory: Path) -> None:
    remove_cluster_keys(unique_prefix(directory))


async def _open_archived(directory: Path, clock: Clock, rng: Random) -> TickingStore:
    database = with_database(mongo_url(), unique_prefix(directory))
    hot = await RedisStore.open(_redis_address(directory), clock=clock, rng=rng)
    return await ArchivedStore.open(hot, database)


async def _remove_archived(directory: Path) -> None:
    await remove_keys(redis_url(), unique_prefix(directory))
    await remove_database(mongo_url(), unique_prefix(directory))


def _in_ci_all(modules: str) -> frozenset[str] | None:
    return None if os.environ.get("CI") else frozenset(modules.split())


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
        has_a_log=True,
        open=_open_wal,
        restart=_reopening(_open_wal),
    ),
    Backend(
        name="wal-reopened-before-each-call",
        durability="fsync",
        survives_restart=True,
        restarts_always=True,
        has_a_log=True,
        open=_open_wal,
        restart=_reopening(_open_wal),
    ),
    Backend(
        name="wal-recovered-before-each-call",
        durability="fsync",
        survives_restart=True,
        restarts_always=True,
        has_a_log=True,
        open=_open_wal,
        restart=_recover_wal,
    ),
    Backend(
        name="redis",
        durability="memory",
        survives_restart=True,
        restarts_always=False,
        open=_open_redis,
        restart=_reopening(_open_redis),
        remove=_remove_redis,
    ),
    Backend(
        name="redis-another-server-before-each-call",
        durability="memory",
        survives_restart=True,
        restarts_always=True,
        open=_open_redis,
        restart=_other_redis_server,
        remove=_remove_redis,
    ),
    Backend(
        name="redis-cluster",
        durability="memory",
        survives_restart=True,
        restarts_always=False,
        modules=_in_ci_all(
            "dead_letters dependencies events_queue leases publishing queues settling shared "
            "waiting"
        ),
        open=_open_cluster,
        restart=_reopening(_open_cluster),
        remove=_remove_cluster,
    ),
    Backend(
        name="redis-and-mongo",
        durability="replicated",
        survives_restart=True,
        restarts_always=False,
        modules=_in_ci_all(
            "dead_letters dedup events_queue idempotency queues retention seek settling shared"
        ),
        open=_open_archived,
        restart=_reopening(_open_archived),
        remove=_remove_archived,
    ),
)

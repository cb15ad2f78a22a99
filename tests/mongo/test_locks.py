"""Locks of queues: a call that was given up may have taken one all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.broker import Broker
from penstock.errors import StoreUnavailable
from penstock.storage.mongo import locks
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from tests.mongo.conftest import Addresses, Open
from tests.redis_server import redis_url, standing_still

# How long the server of these tests waits for Redis; it is 5 seconds otherwise.
_PATIENCE_SECONDS = 0.5
# Less than the time after which a lock runs out.
_SOON_SECONDS = 4
assert _SOON_SECONDS < locks.SECONDS


@pytest_asyncio.fixture
async def impatient(addresses: Addresses) -> AsyncIterator[ArchivedStore]:
    """A server that soon gives up on Redis."""
    hot = await RedisStore.open(addresses.redis, timeout_seconds=_PATIENCE_SECONDS)
    store = await ArchivedStore.open(hot, addresses.mongo)
    yield store
    await store.close()


async def test_a_lock_that_a_call_took_after_it_was_given_up_is_released(
    impatient: ArchivedStore, broker: Broker, store: ArchivedStore
) -> None:
    await _keep_busy(store)
    impatient.start_ticking()
    # Given a server that gave up waiting for the lock of a queue, which it gets all the same
    with standing_still(redis_url()), pytest.raises(StoreUnavailable):
        await impatient._mirror.copy("jobs")
    # Then others need not wait until that lock runs out
    async with asyncio.timeout(_SOON_SECONDS):
        await broker.create_subscription("jobs", "more")


async def test_so_is_the_lock_for_rebuilding_and_a_server_that_starts_need_not_wait(
    impatient: ArchivedStore, store: ArchivedStore, open_server: Open
) -> None:
    await _keep_busy(store)
    impatient.start_ticking()
    with standing_still(redis_url()), pytest.raises(StoreUnavailable):
        await impatient.recover()
    async with asyncio.timeout(_SOON_SECONDS):
        await open_server()


async def test_a_call_that_is_cancelled_while_it_takes_a_lock_leaves_none(
    store: ArchivedStore, open_server: Open, broker: Broker
) -> None:
    other = await open_server()
    # Given a copy that is cancelled when its call for the lock is on its way
    with standing_still(redis_url()):
        copying = asyncio.create_task(other._mirror.copy("jobs"))
        await asyncio.sleep(_PATIENCE_SECONDS / 2)
        copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    async with asyncio.timeout(_SOON_SECONDS):
        await broker.create_subscription("jobs", "more")


async def test_a_lock_does_not_run_out_while_it_is_held(
    store: ArchivedStore, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SECONDS", 0.5)
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.1)
    other = await open_server()
    async with store._locks.held("jobs"):
        await asyncio.sleep(1.5)
        assert not await other._hot.lock("copy:jobs", 1)
        assert await store._locks.renew("jobs")
    assert await other._hot.lock("copy:jobs", 1)


async def _keep_busy(store: ArchivedStore) -> None:
    """Let this server do the work that one of them does: it would take the lock once more."""
    for name in ("archive-pass", "archive-sweep"):
        assert await store._hot.lock(name, 60)

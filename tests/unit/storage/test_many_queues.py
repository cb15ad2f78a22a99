"""What looks at every queue does so in pieces, and others have their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import pytest_asyncio

from penstock.broker import Broker
from penstock.storage.memory import MemoryStore
from tests.contract.clock import ManualClock

QUEUES = 300
LAST = f"queue-{QUEUES - 1}"

# A call that looks at every queue.
Look = Callable[[MemoryStore], Awaitable[object]]
LOOKS = pytest.mark.parametrize("look", [MemoryStore.tick, MemoryStore.stats])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=ManualClock())


@pytest_asyncio.fixture
async def broker(store: MemoryStore) -> Broker:
    broker = Broker(store)
    for number in range(QUEUES):
        await broker.create_queue(f"queue-{number:03}")
    return broker


@LOOKS
async def test_the_loop_goes_on_in_between(store: MemoryStore, broker: Broker, look: Look) -> None:
    looking = asyncio.ensure_future(look(store))
    turns = 0
    while not looking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5


@LOOKS
async def test_a_queue_may_be_deleted_in_between(
    store: MemoryStore, broker: Broker, look: Look
) -> None:
    looking = asyncio.ensure_future(look(store))
    await asyncio.sleep(0)
    await broker.delete_queue(LAST)
    assert not looking.done()
    await looking


async def test_one_that_was_deleted_in_between_has_no_stats(
    store: MemoryStore, broker: Broker
) -> None:
    looking = asyncio.ensure_future(broker.stats())
    await asyncio.sleep(0)
    await broker.delete_queue(LAST)
    assert [one.name for one in await looking] == [f"queue-{n:03}" for n in range(QUEUES - 1)]


async def test_a_page_is_full_although_one_was_deleted_in_between(
    store: MemoryStore, broker: Broker
) -> None:
    looking = asyncio.ensure_future(broker.queues(limit=200))
    await asyncio.sleep(0)
    await broker.delete_queue("queue-150")
    found = [one.name for one in await looking]
    assert (len(found), found[-1]) == (200, "queue-200")


async def test_the_store_may_be_closed_in_between(store: MemoryStore, broker: Broker) -> None:
    ticking = asyncio.ensure_future(store.tick())
    await asyncio.sleep(0)
    await store.close()
    await ticking

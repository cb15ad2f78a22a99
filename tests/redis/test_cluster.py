"""A cluster whose nodes come, go, stand still and hand queues to each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.core.settling import Outcome
from penstock.errors import StoreUnavailable
from penstock.storage.redis import channels
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.store import RedisStore
from tests.contract.clock import ManualClock
from tests.redis_cluster import cluster_url, moving_slot_of, node_of, remove_cluster_keys
from tests.redis_server import standing_still, unique_prefix, with_prefix

_SECONDS = 20
# How long a node is waited for here; it is 5 seconds otherwise.
_PATIENCE_SECONDS = 1.0
_HOOK = Callback(url="https://a.example/hook")

T = TypeVar("T")


@pytest_asyncio.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    prefix = unique_prefix(tmp_path)
    yield with_prefix(cluster_url(), prefix)
    remove_cluster_keys(prefix)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def broker(address: str) -> AsyncIterator[Broker]:
    async with Broker(await RedisStore.open(address)) as broker:
        yield broker


def elsewhere(port: int, name: str) -> str:
    """One that begins so, and whose queue is on another node than this."""
    names = (f"{name}-{number}" for number in count())
    return next(name for name in names if node_of(name) != port)


async def as_soon_as_it_can(call: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(_SECONDS):
        while True:
            with suppress(StoreUnavailable):
                return await call()


async def test_nothing_is_done_to_a_queue_while_it_is_moved_and_then_all_of_it_is_there(
    broker: Broker,
) -> None:
    # Given a queue with messages that are waiting, in flight and settled
    await broker.create_queue("moved")
    await broker.publish("moved", [b"%d" % number for number in range(6)])
    given = await broker.receive("moved", limit=3)
    await broker.ack("moved", given[:1])
    before = await broker.queue_stats("moved")
    with moving_slot_of("moved") as move_one:
        # When its keys move one by one, wherever each of them is by then
        while move_one():
            # Then every step is refused, and none is done by half
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: broker.publish("moved", [b"x"]),
                lambda: broker.receive("moved", limit=3),
                lambda: broker.ack("moved", given[1:]),
            ]
            for call in calls:
                with pytest.raises(StoreUnavailable, match="moved to another Redis"):
                    await call()
    # And when it is there, everything goes on from where it was
    after = await broker.queue_stats("moved")
    assert after.subscriptions[0].ready == before.subscriptions[0].ready == 3
    assert await broker.ack("moved", given[1:]) == [Outcome.DONE] * 2
    assert [one.body for one in await broker.receive("moved", limit=9)] == [b"3", b"4", b"5"]


@pytest_asyncio.fixture
async def store(address: str, clock: ManualClock) -> AsyncIterator[RedisStore]:
    """Of a server without much patience."""
    connection = Connection(address, timeout_seconds=_PATIENCE_SECONDS)
    store = RedisStore(connection, "memory", clock=clock)
    yield store
    await store.close()


async def test_a_node_that_stands_still_is_waited_for_once_and_holds_up_no_other(
    store: RedisStore, clock: ManualClock, tmp_path: Path
) -> None:
    # Given queues on two nodes, the list of them on another than the first, and leases that end
    broker = Broker(store)
    still = elsewhere(node_of(f"{unique_prefix(tmp_path)}:queues"), "a-queue")
    other = elsewhere(node_of(still), "one-that-comes-after-it")
    for queue in (still, other):
        await broker.create_queue(queue)
        await broker.publish(queue, [b"a"])
        await broker.receive(queue, lease_seconds=1)
        await broker.create_subscription(queue, "called", callback=_HOOK)
    called = await broker.callbacks()
    with standing_still(f"redis://127.0.0.1:{node_of(still)}"):
        # When the first stands still, then a request for its queue is refused
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await broker.publish(still, [b"b"])
        # And once that is known, others are without waiting: each for itself, it would take longer
        async with asyncio.timeout(_SECONDS):
            for _ in range(round(2 * _SECONDS / _PATIENCE_SECONDS)):
                with pytest.raises(StoreUnavailable, match="does not answer"):
                    await broker.receive(still)
        # And the other goes on, also with what time brings about, and the server is well
        await broker.publish(other, [b"b"])
        clock.advance(2)
        with pytest.raises(StoreUnavailable):
            await store.tick()
        assert (await broker.queue_stats(other)).subscriptions[0].leases_expired == 1
        assert len(await broker.receive(other, limit=9)) == 2
        assert await broker.callbacks() == called
        assert broker.problem is None
    # And when the first goes on, so does its queue
    assert await as_soon_as_it_can(lambda: broker.receive(still))


async def test_who_waits_for_a_message_gets_it_although_the_node_that_told_the_news_stands_still(
    broker: Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(channels, "_ANSWER_SECONDS", 0.2)
    # Given the node from which a server hears of news, and who waits for those of another
    await broker.create_queue("jobs")
    waiting = asyncio.create_task(broker.receive("jobs", wait_seconds=60))
    port = await as_soon_as_it_can(lambda: _listened_to(address, "{jobs}:news"))
    waiting.cancel()
    queue = elsewhere(port, "other")
    await broker.create_queue(queue)
    waiting = asyncio.create_task(broker.receive(queue, wait_seconds=60))
    await as_soon_as_it_can(lambda: _listened_to(address, f"{{{queue}}}:news"))
    with standing_still(f"redis://127.0.0.1:{port}"):
        # When the first stands still, and something is published at the other
        await broker.publish(queue, [b"a"])
        # Then who waits hears of it from another
        async with asyncio.timeout(_SECONDS):
            assert [one.body for one in await waiting] == [b"a"]


async def _listened_to(address: str, news: str) -> int:
    for place in address.partition("://")[2].partition("?")[0].split(","):
        port = int(place.partition(":")[2])
        async with Redis(port=port) as redis:
            found: list[Any] = await redis.pubsub_channels()
        if any(channel.endswith(news.encode()) for channel in found):
            return port
    raise StoreUnavailable("nobody listens yet")

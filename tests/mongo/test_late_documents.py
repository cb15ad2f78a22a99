"""A document that reaches MongoDB after Redis was wiped and rebuilt from what MongoDB had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.publishing import PublishResult
from penstock.errors import StoreUnavailable
from penstock.storage.archiving import QueueState
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from tests.mongo.conftest import Addresses, Open, redis_rolled_back
from tests.redis_server import redis_url


async def test_one_in_whose_place_others_were_published_comes_back_and_so_do_they(
    broker: Broker, addresses: Addresses, database: Any
) -> None:
    # Given a message whose document came after the rebuilding
    await broker.publish("jobs", [b"a"])
    (late,) = await broker.publish("jobs", [b"late"])
    document = await database["jobs"].find_one_and_delete({"_id": late.id})
    await addresses.wipe_redis()
    assert [m.body for m in await broker.read("jobs")] == [b"a"]
    await database["jobs"].insert_one(document)
    # When others are published, the first of them in its place
    with pytest.raises(StoreUnavailable, match="was rebuilt"):
        await broker.publish("jobs", [b"b", b"c"], idempotency_key="k")
    # Then it is there again, and they can be published, each at least once
    await broker.publish("jobs", [b"b", b"c"], idempotency_key="k")
    found = await broker.read("jobs")
    assert found[1].id == late.id
    assert {m.body for m in found} == {b"a", b"late", b"b", b"c"}


async def test_one_that_was_rebuilt_around_is_put_back_before_its_publish_is_answered(
    broker: Broker, addresses: Addresses, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two publishes that Redis has; the document of the first is the one that is late
    other = await open_server()
    await broker.publish("jobs", [b"a"])
    publishing, go_on = await _late_publish(broker, monkeypatch)
    await Broker(other).publish("jobs", [b"b"])
    # When Redis is wiped and rebuilt without it
    await addresses.wipe_redis()
    await other.recover()
    assert [m.body for m in await other.read("jobs", 0, 9)] == [b"a", b"b"]
    go_on()
    (late,) = await publishing
    # Then it is where it was once it is answered
    assert [m.body for m in await broker.read("jobs")] == [b"a", b"late", b"b"]
    assert (await broker.find("jobs", [late.id]))[0] is not None


async def _late_publish(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Task[PublishResult], Callable[[], None]]:
    """A publish whose message is in Redis, and a function that lets its document be inserted."""
    is_under_way, may_go_on = asyncio.Event(), asyncio.Event()
    insert = Archive.insert

    async def slow_insert(self: Archive, queue: str, documents: Sequence[Any]) -> None:
        if documents and documents[0]["content"] == "late":
            is_under_way.set()
            await may_go_on.wait()
        await insert(self, queue, documents)

    monkeypatch.setattr(Archive, "insert", slow_insert)
    publishing = asyncio.create_task(broker.publish("jobs", [b"late"]))
    await is_under_way.wait()
    return publishing, may_go_on.set


async def test_one_that_redis_lost_by_itself_is_put_back_even_if_nothing_else_happens(
    store: ArchivedStore, broker: Broker, addresses: Addresses
) -> None:
    # Given a Redis that comes back, or is replaced, without the newest message
    lost = await _lose_one(broker, addresses)
    # Then the server that has answered for it notices, as part of its regular work
    await store.check_answered()
    assert [m.id for m in await broker.read("jobs", start=1)] == [lost]


async def test_one_that_redis_lost_is_put_back_even_if_another_server_is_checking_just_then(
    store: ArchivedStore, broker: Broker, addresses: Addresses
) -> None:
    # Given a message that Redis lost after another server had begun to check what is lost
    lost = await _lose_one(broker, addresses)
    async with Redis.from_url(redis_url()) as redis:
        await redis.set(f"{addresses.name}:lock:rebuild", "another server", px=500)
    # When the server that has answered for it notices
    await store.check_answered()
    # Then it does not rely on the other one
    assert [m.id for m in await broker.read("jobs", start=1)] == [lost]


async def test_what_is_acked_as_a_queue_is_about_to_be_rebuilt_stays_acked(
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a queue that has lost a message, and another server that has received an earlier one
    other = Broker(await open_server())
    lost = await _lose_one(broker, addresses)
    (given,) = await other.receive("jobs")
    drop = RedisStore.drop

    async def acked_first(self: RedisStore, queue: str) -> QueueState | None:
        await other.ack(queue, [given])
        return await drop(self, queue)

    # When it is acked at the last moment before the queue is rebuilt
    monkeypatch.setattr(RedisStore, "drop", acked_first)
    await store.check_answered()
    # Then it does not come again
    assert [m.id for m in await broker.receive("jobs", limit=9)] == [lost]


async def _lose_one(broker: Broker, addresses: Addresses) -> str:
    """Publish two messages, of which Redis loses the second. Returns its id."""
    await broker.publish("jobs", [b"a"])
    async with redis_rolled_back(addresses):
        (lost,) = await broker.publish("jobs", [b"lost"])
    assert [m.body for m in await broker.read("jobs")] == [b"a"]
    return lost.id

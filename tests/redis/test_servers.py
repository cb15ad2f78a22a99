"""Several servers over one Redis."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.core.settling import Outcome
from penstock.storage.redis.store import RedisStore


def _fail() -> None:
    raise AssertionError("a server asked its own clock")


async def test_a_message_is_given_to_one_of_them(broker: Broker, address: str) -> None:
    other = Broker(await RedisStore.open(address))
    await broker.publish("jobs", [b"%d" % n for n in range(50)])
    given = await asyncio.gather(
        *(one.receive("jobs", limit=5) for _ in range(5) for one in (broker, other))
    )
    indexes = [delivery.index for part in given for delivery in part]
    assert sorted(indexes) == list(range(50))
    await other.close()


async def test_what_one_delivered_another_settles(broker: Broker, address: str) -> None:
    await broker.publish("jobs", [b"a"])
    given = await broker.receive("jobs")
    other = Broker(await RedisStore.open(address))
    assert await other.ack("jobs", [given[0].receipt]) == [Outcome.DONE]
    assert await broker.ack("jobs", given) == [Outcome.ALREADY_SETTLED]
    await other.close()


async def test_who_waits_on_one_is_woken_by_another(broker: Broker, address: str) -> None:
    other = Broker(await RedisStore.open(address))
    waiting = asyncio.create_task(broker.receive("jobs", wait_seconds=30))
    await asyncio.sleep(0)
    await other.publish("jobs", [b"a"])
    async with asyncio.timeout(20):
        assert [delivery.body for delivery in await waiting] == [b"a"]
    await other.close()


async def test_a_filter_that_another_server_made_is_applied_at_once(
    broker: Broker, address: str
) -> None:
    # Given a server that knows the queue as it was
    await broker.publish("jobs", [b"before"])
    other = Broker(await RedisStore.open(address))
    # When another one adds a subscription with a filter
    await other.create_subscription("jobs", "reds", filter='topic == "red"')
    # Then what the first one publishes next goes through it
    await broker.publish("jobs", [NewMessage(body=b"red", topic="red"), b"plain"])
    given = await other.receive("jobs", subscription="reds", limit=9)
    assert [delivery.body for delivery in given] == [b"red"]
    await other.close()


async def test_a_queue_that_another_server_made_anew_is_told_from_the_old_one(
    broker: Broker, address: str
) -> None:
    (old,) = await broker.publish("jobs", [b"old"])
    other = Broker(await RedisStore.open(address))
    await other.delete_queue("jobs")
    await other.create_queue("jobs")
    (new,) = await broker.publish("jobs", [b"new"])
    assert new.id != old.id
    assert await broker.find("jobs", [old.id]) == [None]
    assert [m.body for m in await broker.read("jobs")] == [b"new"]
    await other.close()


async def test_a_lease_is_as_long_as_the_clock_of_redis_says(
    broker: Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given servers that have no idea of the time
    monkeypatch.setattr("time.time", _fail)
    monkeypatch.setattr("time.time_ns", _fail)
    # Then one that has a message keeps the other from getting it
    await broker.publish("jobs", [b"a"])
    (given,) = await broker.receive("jobs", lease_seconds=60)
    assert given.deadline is not None
    assert given.deadline - given.created_at >= timedelta(seconds=60)
    other = Broker(await RedisStore.open(address))
    assert await other.receive("jobs") == []
    await other.close()


async def test_what_is_due_is_done_by_one_of_them(broker: Broker, address: str) -> None:
    await broker.publish("jobs", [b"a"])
    await broker.receive("jobs", lease_seconds=0.001)
    await asyncio.sleep(0.002)
    stores = [await RedisStore.open(address) for _ in range(3)]
    for store in stores:
        await store.tick(60)
    (stats,) = (await broker.queue_stats("jobs")).subscriptions
    assert (stats.leases_expired, stats.ready) == (1, 1)
    for store in stores:
        await store.close()


async def test_the_round_trips_of_a_request_do_not_grow_with_the_servers(address: str) -> None:
    counts = []
    stores = [await RedisStore.open(address)]
    await Broker(stores[0]).create_queue("jobs")
    for servers in (1, 3):
        while len(stores) < servers:
            stores.append(await RedisStore.open(address))
        broker = Broker(stores[-1])
        await broker.publish("jobs", [b"x"])  # it has learned of the queue
        before = stores[-1].round_trips
        await broker.publish("jobs", [b"x"] * 100)
        await broker.ack("jobs", await broker.receive("jobs", limit=100))
        counts.append(stores[-1].round_trips - before)
    assert counts == [3, 3]
    for store in stores:
        await store.close()

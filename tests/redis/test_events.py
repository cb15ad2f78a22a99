"""Lifecycle events of queues in Redis, with several servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.lifecycle import runs_in
from penstock.storage.redis.connection import Argument
from penstock.storage.redis.steps import Steps
from penstock.storage.redis.store import RedisStore

EVENTS = "orders-events"


@pytest_asyncio.fixture
async def observed(store: RedisStore) -> Broker:
    """With a queue `orders` whose events are told."""
    broker = Broker(store)
    await broker.create_queue("orders", events=True)
    return broker


async def told(broker: Broker) -> Counter[tuple[str, int]]:
    messages = await broker.read(EVENTS, 0, 10_000)
    runs = [run for message in messages for run in runs_in(message.body)]
    return Counter((run.event, index) for run in runs for index in range(run.start, run.stop))


async def test_servers_that_look_at_once_tell_every_row_once(
    observed: Broker, address: str
) -> None:
    other = Broker(await RedisStore.open(address))

    async def work(broker: Broker) -> None:
        for _ in range(10):
            await broker.publish("orders", [b"a", b"b"])
            await broker.ack("orders", await broker.receive("orders", limit=2))

    async def look(broker: Broker) -> None:
        for _ in range(10):
            await broker.read(EVENTS)

    await asyncio.gather(*(do(one) for do in (work, look, look) for one in (observed, other)))
    expected = {(event, n) for event in ("published", "delivered", "acked") for n in range(40)}
    assert await told(other) == Counter(expected)
    await other.close()


async def test_who_waits_for_events_is_woken_by_what_happens_at_another_server(
    observed: Broker, address: str
) -> None:
    await observed.create_subscription(EVENTS, "audit", filter='body[0].event == "published"')
    waiting = asyncio.create_task(observed.receive(EVENTS, subscription="audit", wait_seconds=30))
    await asyncio.sleep(0)
    other = Broker(await RedisStore.open(address))
    await other.publish("orders", [b"a"])
    async with asyncio.timeout(20):
        (delivery,) = await waiting
    assert [run.event for run in runs_in(delivery.body)] == ["published"]
    await other.close()


async def test_what_nobody_looks_at_is_told_by_the_regular_work(
    observed: Broker, store: RedisStore, redis: Redis, root: str
) -> None:
    key = root.removesuffix("{jobs}") + "{orders}"
    await observed.publish("orders", [b"a"])
    assert await redis.llen(f"{key}:untold") == 1
    await store.tick()
    assert await redis.llen(f"{key}:untold") == 0
    assert await redis.xlen(f"{key}-events:stream") == 1


async def test_telling_costs_who_publishes_and_consumes_no_round_trip(
    observed: Broker, store: RedisStore
) -> None:
    await observed.publish("orders", [b"a"])
    before = store.round_trips
    await observed.publish("orders", [b"b"])
    await observed.ack("orders", await observed.receive("orders", limit=2))
    assert store.round_trips - before == 3


async def test_a_bound_of_the_events_holds_up_nothing(observed: Broker) -> None:
    await observed.alter_queue(EVENTS, max_messages=1)
    await observed.create_subscription(EVENTS, "audit")
    for _ in range(3):
        await observed.publish("orders", [b"a"])
    assert await told(observed) == Counter({("published", n): 1 for n in range(3)})


async def test_a_plain_queue_with_such_a_name_is_one(observed: Broker) -> None:
    await observed.create_queue("my-events")
    await observed.publish("my-events", [b"a"])
    assert [message.body for message in await observed.read("my-events")] == [b"a"]
    await observed.create_queue("my")
    await observed.delete_queue("my")
    assert [message.body for message in await observed.read("my-events")] == [b"a"]


async def test_a_queue_that_is_deleted_while_its_events_are_told_spoils_no_list(
    observed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await observed.publish("orders", [b"a"])
    run = Steps.run

    async def run_and_delete(self: Steps, name: str, key: str, *arguments: Argument) -> Any:
        answer = await run(self, name, key, *arguments)
        if name == "untold":
            monkeypatch.undo()
            await observed.delete_queue("orders")
        return answer

    # Given a server that has read what is to be told, when the queue is deleted
    monkeypatch.setattr(Steps, "run", run_and_delete)
    # Then it still lists the others
    assert EVENTS not in [stats.name for stats in await observed.stats()]

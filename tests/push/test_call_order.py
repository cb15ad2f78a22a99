"""Which calls are made before which others, and how many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from penstock import Backoff, Callback, NewMessage
from penstock.broker import Broker
from penstock.push import LOOPBACK, Dispatcher
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore
from tests.contract.clock import ManualClock
from tests.push.conftest import QUEUE, SOON, dead_letters, stats_of, subscribe, until_stats
from tests.push.receiver import Call, Receiver, answering

pytestmark = pytest.mark.usefixtures("dispatcher")


async def test_an_ordered_callback_retries_a_message_before_any_later_one(
    broker: Broker, receiver: Receiver
) -> None:
    receiver.behave = answering(500, 200, 500, 500, 200)
    await subscribe(broker, receiver.url(), ordered=True)
    await broker.publish(QUEUE, [b"a", b"b", b"c"])
    calls = await receiver.wait_for(6)
    assert [call.body for call in calls] == [b"a", b"a", b"b", b"b", b"b", b"c"]


async def test_an_ordered_callback_keeps_order_and_backoff_over_a_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    # Given an ordered callback whose first message failed, and a server that goes down
    clock = ManualClock()
    receiver.behave = answering(500, 200)

    @asynccontextmanager
    async def life() -> AsyncIterator[tuple[Broker, WalStore]]:
        store = await WalStore.open(DiskFiles(tmp_path), clock=clock)
        async with Broker(store) as broker:
            dispatcher = Dispatcher(broker, allowed=LOOPBACK)
            await dispatcher.start()
            yield broker, store
            await dispatcher.close(grace_seconds=0)

    async with life() as (broker, _):
        await broker.create_queue(QUEUE)
        await subscribe(broker, receiver.url(), ordered=True, backoff=Backoff(base_seconds=3600))
        await broker.publish(QUEUE, [b"a", b"b"])
        await until_stats(broker, "called", lambda stats: stats.delayed == 1)
    # When it is back, and goes on with others
    async with life() as (broker, store):
        await subscribe(broker, receiver.url(), "other")
        await broker.publish(QUEUE, [b"c"])
        await until_stats(broker, "other", lambda stats: stats.acked == 1)
        # Then the failed one is not called before its time, nor is any later one
        stats = await stats_of(broker, "called")
        assert (stats.delayed, stats.ready, stats.in_flight) == (1, 2, 0)
        assert [c.body for c in receiver.calls if c.subscription == "called"] == [b"a"]
        # And when the time has come, all of them are, in order
        clock.advance(3600)
        await store.tick()
        await until_stats(broker, "called", lambda stats: stats.acked == 3)
        called = [c.body for c in receiver.calls if c.subscription == "called"]
        assert called == [b"a", b"a", b"b", b"c"]


async def test_a_message_that_an_ordered_callback_never_takes_makes_way(
    broker: Broker, receiver: Receiver
) -> None:
    receiver.behave = answering(500, 500, 200)
    await subscribe(broker, receiver.url(), ordered=True, max_deliveries=2)
    await broker.publish(QUEUE, [b"a", b"b"])
    calls = await receiver.wait_for(3)
    assert [call.body for call in calls] == [b"a", b"a", b"b"]
    assert len(await dead_letters(broker, 1)) == 1


async def test_a_fifo_queue_keeps_order_within_a_group(broker: Broker, receiver: Receiver) -> None:
    # Given a group whose first message fails twice
    async def fail_first(call: Call) -> web.StreamResponse:
        failures = sum(earlier.body == b"a1" for earlier in receiver.calls)
        return web.Response(status=500 if call.body == b"a1" and failures < 3 else 200)

    receiver.behave = fail_first
    await broker.create_queue("groups", fifo=True)
    await broker.create_subscription(
        "groups", "called", callback=Callback(url=receiver.url()), backoff=SOON
    )
    # When two groups are published
    await broker.publish(
        "groups", [NewMessage(body=b, group_key=b[:1].decode()) for b in (b"a1", b"a2", b"b1")]
    )
    # Then the second of the group waits for the first, and the other group does not
    calls = await receiver.wait_for(5)
    assert [c.body for c in calls if c.body[:1] == b"a"] == [b"a1", b"a1", b"a1", b"a2"]
    assert [c.body for c in calls if c.body[:1] == b"b"] == [b"b1"]


async def test_a_callback_waits_for_those_that_it_comes_after(
    broker: Broker, receiver: Receiver
) -> None:
    # Given C after A and B, and an A that fails once
    async def fail_once(call: Call) -> web.StreamResponse:
        tries = sum(earlier.path == call.path for earlier in receiver.calls)
        return web.Response(status=500 if call.path == "/A" and tries == 1 else 200)

    receiver.behave = fail_once
    for name, after in (("A", []), ("B", []), ("C", ["A", "B"])):
        await subscribe(broker, receiver.url(name), name, after=after)
    await broker.publish(QUEUE, [b"x"])
    # Then C is called last
    calls = await receiver.until(lambda calls: any(call.path == "/C" for call in calls))
    paths = [call.path for call in calls]
    assert paths.index("/C") == 3
    assert sorted(paths[:3]) == ["/A", "/A", "/B"]


async def test_no_more_calls_at_once_than_the_subscription_allows(
    broker: Broker, receiver: Receiver
) -> None:
    # Given an endpoint that answers nobody until three are there
    there, most = 0, 0
    gate = asyncio.Event()

    async def hold(call: Call) -> web.StreamResponse:
        nonlocal there, most
        there += 1
        most = max(most, there)
        if there == 3:
            gate.set()
        await gate.wait()
        there -= 1
        return web.Response()

    receiver.behave = hold
    await subscribe(broker, receiver.url(), concurrency=3)
    await broker.publish(QUEUE, [b"x"] * 20)
    await until_stats(broker, "called", lambda s: s.acked == 20)
    assert most == 3

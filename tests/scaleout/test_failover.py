"""A Redis goes and a replica takes its place, under load; nobody does anything about it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.core.message import Delivery
from penstock.errors import StoreUnavailable
from penstock.push import LOOPBACK, Dispatcher
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.store import RedisStore
from tests.client.server import Server
from tests.crash import report
from tests.crash.load import Load
from tests.http.client import Client
from tests.push.receiver import Receiver
from tests.redis_server import standing_still
from tests.scaleout.cluster import Shards, shards
from tests.scaleout.faults import AWAY_SECONDS
from tests.scaleout.run import run_fault
from tests.scaleout.sentinel import SentinelGroup, sentinel_group

MESSAGES = 150
_SECONDS = 60
_POLL_SECONDS = 0.02


@pytest_asyncio.fixture
async def redis() -> AsyncIterator[SentinelGroup]:
    async with sentinel_group() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Shards]:
    """Each test leaves it with all nodes running."""
    async with shards() as found:
        yield found


@asynccontextmanager
async def serving(url: str, directory: Path) -> AsyncIterator[list[Server]]:
    """Two servers that answer a write once a replica has it."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(2):
            data, log = str(directory / f"data-{number}"), directory / f"log-{number}"
            server = Server(data, log, PENSTOCK_STORE=f"{url}?replicas=1")
            stack.callback(server.end, signal.SIGKILL)
            await asyncio.to_thread(server.start)
            found.append(server)
        yield found


async def test_what_a_replica_had_before_it_was_promoted_is_not_lost(
    redis: SentinelGroup, tmp_path: Path
) -> None:
    async with serving(redis.url, tmp_path) as servers:
        user = Client(servers[0].port, "user", "password")

        async def fail_over(_: Load) -> None:
            # When the Redis that takes the writes is killed
            redis.servers[await redis.master()].terminate()
            # Then requests are refused until another one has taken over
            refused = await asyncio.to_thread(user.push, "jobs")
            assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
            assert refused.headers["retry-after"] == "1"
            ready = await asyncio.to_thread(user.ask, "GET", "/readyz")
            assert ready.status == 503
            await redis.promote()

        # And then everything goes on, and all that was answered is there
        await run_fault([server.url for server in servers], fail_over, MESSAGES)
        ready = await asyncio.to_thread(user.ask, "GET", "/readyz")
        assert ready.status == 200


async def test_what_the_replica_of_a_node_had_before_it_was_promoted_is_not_lost(
    cluster: Shards, tmp_path: Path
) -> None:
    async with serving(cluster.url, tmp_path) as servers:
        user = Client(servers[0].port, "user", "password")

        async def fail_over(_: Load) -> None:
            node, replica = await cluster.shard_of(report.QUEUE)
            # When a node goes on for a while without its replica, which nobody may be told of
            async with cluster.cut_off(node, replica):
                await asyncio.sleep(AWAY_SECONDS)
                # And is killed
                node.terminate()
            # Then requests for its queues are refused until the replica has taken over
            refused = await asyncio.to_thread(user.push, report.QUEUE)
            assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
            await cluster.promote(replica)
            # And the former node comes back as a replica
            await asyncio.to_thread(node.start)

        # And then everything goes on, and all that was answered is there
        await run_fault([server.url for server in servers], fail_over, MESSAGES)
        await cluster.wait_until_replicated()


async def test_a_node_that_stands_still_is_replaced_while_the_others_go_on(
    cluster: Shards,
) -> None:
    # Given queues on two nodes, of which replicas have everything
    node, replica = await cluster.shard_of("still")
    nodes = {name: (await cluster.shard_of(name))[0] for name in ("one", "two", "three")}
    other = next(name for name in nodes if nodes[name] != node)
    async with Broker(await RedisStore.open(f"{cluster.url}?replicas=1")) as broker:
        for name in ("still", other):
            await broker.create_queue(name)
        await broker.publish("still", [b"a"])
    # And a server that would wait for longer than this test does
    connection = Connection(cluster.url, timeout_seconds=2 * _SECONDS)
    async with Broker(RedisStore(connection, "fsync")) as broker, asyncio.timeout(_SECONDS):
        with standing_still(f"redis://127.0.0.1:{node.port}"):
            # When one of them stands still, then a request for its queue waits
            waiting = asyncio.create_task(broker.publish("still", [b"b"]))
            promoted = asyncio.create_task(cluster.promote(replica))
            # And those for the other are served all along
            while not promoted.done():
                await broker.publish(other, [b"c"])
            await promoted
            # And when its replica was promoted, the one that waits is refused
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await waiting
            # And those that come then are served, by a server that nobody has told
            assert [one.body for one in await _receive_when_available(broker, "still")] == [b"a"]
    await cluster.wait_until_replicated()


async def test_a_server_that_starts_without_a_node_takes_in_the_replica_that_is_promoted(
    cluster: Shards,
) -> None:
    # Given two queues on nodes of their own, both with messages and with somebody who is called
    listing, _ = await cluster.shard_of("penstock:queues")
    nodes = {name: (await cluster.shard_of(name))[0] for name in ("four", "five", "six", "seven")}
    gone = next(name for name in nodes if nodes[name] != listing)
    there = next(name for name in nodes if nodes[name] != nodes[gone])
    node, replica = await cluster.shard_of(gone)
    url = cluster.url
    async with Receiver() as receiver, asyncio.timeout(_SECONDS):
        async with Broker(await RedisStore.open(f"{url}?replicas=1")) as broker:
            for queue in (gone, there):
                hook = Callback(url=receiver.url(queue))
                await broker.create_queue(queue)
                await broker.create_subscription(queue, "hook", callback=hook)
                await broker.publish(queue, [b"%d" % number for number in range(10)])
        # When one is killed, and a server started
        node.terminate()
        store = await RedisStore.open(url)
        async with Broker(store) as broker:
            dispatcher = Dispatcher(broker, allowed=LOOPBACK, refresh_seconds=0.05)
            await dispatcher.start()
            # Then it calls for the other
            assert {call.path for call in await receiver.wait_for(10)} == {f"/{there}"}
            # And promises nothing of one that it could not ask
            assert broker.durability == "memory"
            # And it is ready, unless the others have stopped as well
            await cluster.set_coverage(True)
            await _wait_for_problem(store, "cluster is down")
            with pytest.raises(StoreUnavailable, match="Redis is away"):
                await RedisStore.open(url)
            await cluster.set_coverage(False)
            await _wait_for_problem(store, None)
            # And when the replica is promoted, for the rest: for each message once
            await cluster.promote(replica)
            await receiver.wait_for(20)
            await dispatcher.close()
            await store.tick()
            assert store.durability == "fsync"
            for queue in (gone, there):
                bodies = [int(one.body) for one in receiver.calls if one.path == f"/{queue}"]
                assert sorted(bodies) == list(range(10))
            assert {one.name for one in await broker.stats()} >= {gone, there}
    await asyncio.to_thread(node.start)
    await cluster.wait_until_replicated()


async def test_a_redis_that_stands_still_is_left_for_the_one_that_sentinel_promotes(
    redis: SentinelGroup,
) -> None:
    connection = Connection(f"{redis.url}?replicas=1", timeout_seconds=1)
    async with Broker(RedisStore(connection, "fsync")) as broker:
        await broker.create_queue("jobs")
        await broker.publish("jobs", [b"a"])
        # When the Redis that takes the writes stands still until another one has taken over
        with standing_still(f"redis://127.0.0.1:{await redis.master()}"):
            waiting = asyncio.create_task(broker.publish("jobs", [b"b"]))
            await redis.promote()
            # Then who waited for it is refused
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await waiting
            # And then everything goes on
            assert [one.body for one in await _receive_when_available(broker, "jobs")] == [b"a"]


async def _wait_for_problem(store: RedisStore, text: str | None) -> None:
    """Wait until the store has a problem that contains ``text``; or none, if that is None."""
    async with asyncio.timeout(_SECONDS):
        while bool(store.problem) if text is None else text not in str(store.problem):
            with suppress(StoreUnavailable):
                await store.tick()
            await asyncio.sleep(_POLL_SECONDS)


async def _receive_when_available(broker: Broker, queue: str) -> list[Delivery]:
    """Receive, and retry while the store is unavailable."""
    async with asyncio.timeout(_SECONDS):
        while True:
            with suppress(StoreUnavailable):
                return await broker.receive(queue)
            await asyncio.sleep(_POLL_SECONDS)

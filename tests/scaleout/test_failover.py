"""A Redis goes and a replica takes its place, under load; nobody does anything about it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest_asyncio

from tests.client.server import Server
from tests.crash import report
from tests.crash.load import Load
from tests.http.client import Client
from tests.scaleout.cluster import Shards, shards
from tests.scaleout.faults import AWAY_SECONDS
from tests.scaleout.run import run_fault
from tests.scaleout.sentinel import Watched, watched

MESSAGES = 150


@pytest_asyncio.fixture
async def redis() -> AsyncIterator[Watched]:
    async with watched() as found:
        yield found


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Shards]:
    async with shards() as found:
        yield found


@asynccontextmanager
async def serving(url: str, directory: Path) -> AsyncIterator[list[Server]]:
    """Two servers whose steps are answered when a replica has them."""
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
    redis: Watched, tmp_path: Path
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
            node, replica = await cluster.of(report.QUEUE)
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

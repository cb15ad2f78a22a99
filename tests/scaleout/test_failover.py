"""A Redis goes and a replica takes its place, under load; nobody does anything about it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest_asyncio

from tests.client.server import Server
from tests.crash.load import Load
from tests.http.client import Client
from tests.scaleout.run import run_fault
from tests.scaleout.sentinel import Watched, watched

MESSAGES = 150


@pytest_asyncio.fixture
async def redis() -> AsyncIterator[Watched]:
    async with watched() as found:
        yield found


@pytest_asyncio.fixture
async def servers(redis: Watched, tmp_path: Path) -> AsyncIterator[list[Server]]:
    """Whose steps are answered when a replica has them."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(2):
            data, log = str(tmp_path / f"data-{number}"), tmp_path / f"log-{number}"
            server = Server(data, log, PENSTOCK_STORE=f"{redis.url}?replicas=1")
            stack.callback(server.end, signal.SIGKILL)
            await asyncio.to_thread(server.start)
            found.append(server)
        yield found


async def test_what_a_replica_had_before_it_was_promoted_is_not_lost(
    redis: Watched, servers: list[Server]
) -> None:
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

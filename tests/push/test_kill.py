"""A real server that is killed while it calls: nothing accepted is lost, nothing unsent arrives."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from penstock.client import AsyncClient, Retry, Unreachable
from penstock.core.stats import SubscriptionStats
from tests.http.server import Server, running
from tests.push.receiver import PATIENCE_SECONDS, Call, Receiver
from tests.push.wires import drip_headers, flood, forever, halves, redirect, reset, speaking

QUEUE = "jobs"
ENVIRONMENT = {"PENSTOCK_CALLBACK_LEASE_SECONDS": "0.5"}


def admin(server: Server) -> AsyncClient:
    return AsyncClient(
        server.url,
        username="admin",
        password="adminpassword",
        retry=Retry(attempts=1),
        is_idempotent=False,
    )


async def publish_until_killed(server: Server, accepted: set[str], sent: set[str]) -> None:
    """One after the other, so that at most one is in doubt."""
    async with admin(server) as client:
        number = 0
        while True:
            body = f"{server.process.pid}-{number}"
            number += 1
            sent.add(body)
            try:
                await client.publish(QUEUE, [body.encode()])
            except Unreachable:
                return
            accepted.add(body)


async def until(
    client: AsyncClient, name: str, condition: Callable[[SubscriptionStats], bool]
) -> SubscriptionStats:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            stats = await client.subscription_stats(QUEUE, name)
            if condition(stats):
                return stats
            await asyncio.sleep(0.02)


async def until_acked(client: AsyncClient, count: int) -> None:
    """By the second, who comes after the first."""
    await until(client, "second", lambda stats: stats.acked == count)


async def test_a_server_killed_in_between_calls_everybody_in_the_end(
    tmp_path: Path, receiver: Receiver
) -> None:
    rng = random.Random(3)

    async def answer(call: Call) -> web.StreamResponse:
        await asyncio.sleep(0.001)
        return web.Response(status=500 if rng.random() < 0.2 else 200)

    receiver.behave = answer
    accepted: set[str] = set()
    sent: set[str] = set()
    data = str(tmp_path / "data")

    # Given a server that is killed twice while messages come in and are called back
    with running(data, tmp_path / "log-0", environment=ENVIRONMENT) as server:
        async with admin(server) as client:
            await client.create_queue(QUEUE)
            await client.delete_subscription(QUEUE, "default")
            for name, after in (("first", []), ("second", ["first"])):
                await client.create_subscription(
                    QUEUE,
                    name,
                    after=after,
                    max_deliveries=None,
                    backoff={"base_seconds": 0.01},
                    callback={"url": receiver.url(name)},
                )
            early = {b"early-%d" % number for number in range(5)}
            await client.publish(QUEUE, sorted(early))
            await until_acked(client, 5)
        sent |= {body.decode() for body in early}
        publishing = asyncio.create_task(publish_until_killed(server, accepted, sent))
        await receiver.wait_for(len(receiver.calls) + 30)
        server.kill()
        await publishing
        calls_of_first_life = len(receiver.calls)
    with running(data, tmp_path / "log-1", environment=ENVIRONMENT) as server:
        publishing = asyncio.create_task(publish_until_killed(server, accepted, sent))
        await receiver.wait_for(len(receiver.calls) + 30)
        server.kill()
        await publishing

    # When it is started again
    with running(data, tmp_path / "log-2", environment=ENVIRONMENT) as server:
        async with admin(server) as client:
            await until_acked(client, (await client.queue_stats(QUEUE)).next_index)
        assert server.stop() == 0

    # Then each of the two has got all that was accepted, and nothing that was never sent
    for name in ("first", "second"):
        got = {call.body.decode() for call in receiver.calls if call.path == f"/{name}"}
        assert accepted - got == set()
        assert got - sent == set()
    # And no message was called back to the second before the first had it
    seen: set[str] = set()
    for call in receiver.calls:
        if call.path == "/first":
            seen.add(call.body.decode())
        else:
            assert call.body.decode() in seen
    # And what was acked in the first life was not called again in a later one
    assert early.isdisjoint(call.body for call in receiver.calls[calls_of_first_life:])


async def test_a_server_killed_amid_endpoints_that_misbehave_loses_nothing(tmp_path: Path) -> None:
    """The total queue: what was accepted is acked or a dead letter in the end, for each of them."""
    wires = {
        "hang": forever,
        "drip": drip_headers,
        "reset": reset,
        "half": halves(random.Random(4)),
        "redirect": redirect,
        "gigabyte": flood,
    }
    data = str(tmp_path / "data")
    sent = 0

    async def publish(client: AsyncClient, count: int) -> None:
        nonlocal sent
        await client.publish(QUEUE, [b"%d" % number for number in range(sent, sent + count)])
        sent += count

    async with contextlib.AsyncExitStack() as stack:
        urls = {n: await stack.enter_async_context(speaking(wire)) for n, wire in wires.items()}
        # Given a server that is killed in the middle of calls, some of which never end
        with running(data, tmp_path / "log-0", environment=ENVIRONMENT) as server:
            async with admin(server) as client:
                await client.create_queue(QUEUE)
                await client.delete_subscription(QUEUE, "default")
                for name, url in urls.items():
                    await client.create_subscription(
                        QUEUE,
                        name,
                        max_deliveries=None if name == "half" else 1,
                        backoff={"base_seconds": 0.01},
                        callback={"url": url, "timeout_seconds": 0.5, "concurrency": 20},
                    )
                await publish(client, 10)
                await until(client, "half", lambda stats: stats.acked > 0)
            server.kill()
        # When it is started again
        with running(data, tmp_path / "log-1", environment=ENVIRONMENT) as server:
            async with admin(server) as client:
                await publish(client, 1)
                # Then each message left in one of two ways, and none is in doubt
                for name in wires:
                    stats = await until(
                        client, name, lambda stats: stats.acked + stats.dead_lettered == sent
                    )
                    assert stats.acked == (sent if name == "half" else 0), name
                    assert stats.in_flight + stats.ready + stats.delayed == 0
                letters = await client.dead_letters(QUEUE, limit=1000)
            assert server.stop() == 0
    counts = Counter(letter.dead_letter.subscription for letter in letters if letter.dead_letter)
    assert counts == dict.fromkeys(wires.keys() - {"half"}, sent)

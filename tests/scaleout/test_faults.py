"""Three servers, and something breaks under load: nothing is lost, nothing held by two at once.

What each fault costs is counted by ``python -m tests.scaleout``.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import cycle

import pytest
import pytest_asyncio

from penstock.core.settling import Outcome
from tests.client.server import Server
from tests.crash.load import IMPATIENT
from tests.http.client import Answer, Client
from tests.proxy import Proxy
from tests.scaleout.faults import FAULTS, NO_FAULT, Fault
from tests.scaleout.topology import Topology, topology

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = int(os.environ.get("PENSTOCK_FAULT_MESSAGES", "150"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain() -> AsyncIterator[Topology]:
    async with topology(archived=False) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def archived() -> AsyncIterator[Topology]:
    async with topology(archived=True) as found:
        yield found


def faults(*, archived: bool) -> list[Fault]:
    return [fault for fault in FAULTS if fault.archived == archived and not fault.is_slow]


async def test_servers_whose_clocks_disagree_never_give_a_message_to_two(plain: Topology) -> None:
    # Given servers that are a minute apart from each other
    times = [_clock_of(server) for server in plain.servers]
    assert max(times) - min(times) > timedelta(seconds=110)
    # Then the checker finds no message under two leases at once
    await NO_FAULT.cost(plain, MESSAGES)


def _clock_of(server: Server) -> datetime:
    """Every error says when it happened."""
    answer = Client(server.port).ask("GET", "/queue/pop", consumerGroup="jobs")
    return datetime.fromisoformat(answer.json["timestamp"])


async def test_behind_one_address_the_servers_are_one(archived: Topology) -> None:
    # Given a proxy that leads every connection to the next server
    front = Proxy(archived.urls[0])
    await front.heal()
    client, turns = Client(front.port, "user", "password"), cycle(archived.urls)

    async def ask(method: str, path: str, body: bytes | None = None) -> Answer:
        front.lead_to(next(turns))
        return await asyncio.to_thread(client.ask, method, path, body, consumerGroup="proxied")

    # When each message is pushed, popped and acked through it, by another server each time
    for number in range(4):
        pushed = await ask("POST", "/queue/push", b"%d" % number)
        popped = await ask("GET", "/queue/pop")
        acked = await ask("POST", f"/queue/ack?id={popped.json['id']}")
        # Then what one has taken the next one gives, and a third one settles
        assert (pushed.status, popped.status, acked.status) == (200, 200, 200)
        assert (popped.json["id"], popped.json["content"]) == (pushed.json["id"], str(number))
        assert (await ask("GET", "/queue/pop")).status == 404
    await front.cut()


async def test_late_acks_of_a_paused_server_settle_nothing_that_somebody_else_has(
    plain: Topology,
) -> None:
    paused, other, _ = plain.servers
    async with paused.client(retry=IMPATIENT) as one, other.client() as two:
        # Given leases that end while the server that gave them stands still, acks on their way
        await one.create_queue("late")
        await one.publish("late", [b"x"] * 6)
        given = await one.receive("late", limit=6, lease_seconds=0.5)
        paused.send(signal.SIGSTOP)
        try:
            acks = asyncio.create_task(one.ack("late", given))
            # When another consumer gets some of the messages
            again = await two.receive("late", limit=3, wait_seconds=20, lease_seconds=60)
            assert [d.index for d in again] == [0, 1, 2]
        finally:
            paused.send(signal.SIGCONT)
        # Then the late acks count for what nobody else has
        assert await acks == [Outcome.NOT_LEASED] * 3 + [Outcome.DONE] * 3
        assert await two.ack("late", again) == [Outcome.DONE] * 3
        await one.delete_queue("late")


@pytest.mark.parametrize("fault", faults(archived=False), ids=lambda fault: fault.name)
async def test_nothing_is_lost(plain: Topology, fault: Fault) -> None:
    await fault.cost(plain, MESSAGES)


@pytest.mark.parametrize("fault", faults(archived=True), ids=lambda fault: fault.name)
async def test_nothing_is_lost_with_an_archive(archived: Topology, fault: Fault) -> None:
    await fault.cost(archived, MESSAGES)

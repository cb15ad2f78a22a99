"""What is done to the servers, to Redis and to MongoDB. Each ends with all of them there again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from tests.crash.load import LEASE_SECONDS, Load
from tests.crash.report import QUEUE
from tests.http.server import penstock_command
from tests.scaleout.run import END_SECONDS, Cost, run_fault
from tests.scaleout.topology import Topology

__all__ = ["FAULTS", "NO_FAULT", "Fault"]

# How long something is away.
AWAY_SECONDS = 1.0
# Longer than the patience of a server with MongoDB, which is 2 seconds.
MONGO_AWAY_SECONDS = 2.5
# Longer than the patience of a server with Redis, which is 5 seconds.
FROZEN_SECONDS = 6.0
_RECOVER_SECONDS = 60
_QUIET_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that happens under load. ``is_slow``: it is left out of a short run."""

    name: str
    happen: Callable[[Topology, Load], Awaitable[None]]
    archived: bool = False
    is_slow: bool = False

    async def cost(self, topology: Topology, messages: int) -> Cost:
        """What the fault costs, with this many messages before it and after it."""
        return await run_fault(topology.urls, partial(self.happen, topology), messages)


async def _no_fault(_: Topology, __: Load) -> None:
    await asyncio.sleep(AWAY_SECONDS)


async def _kill_a_server(topology: Topology, _: Load) -> None:
    server = topology.servers[0]
    await asyncio.to_thread(server.end, signal.SIGKILL)
    await asyncio.to_thread(server.start)


async def _kill_redis(topology: Topology, _: Load) -> None:
    await asyncio.to_thread(topology.redis.terminate)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(topology.redis.start)


async def _pause_a_server(topology: Topology, _: Load) -> None:
    server = topology.servers[0]
    server.send(signal.SIGSTOP)
    await asyncio.sleep(1.5 * LEASE_SECONDS)
    server.send(signal.SIGCONT)


async def _cut_one_from_redis(topology: Topology, _: Load) -> None:
    way = topology.redis_ways[0]
    await way.cut()
    await asyncio.sleep(AWAY_SECONDS)
    await way.heal()


async def _cut_all_from_redis(topology: Topology, _: Load) -> None:
    for way in topology.redis_ways:
        await way.cut()
    await asyncio.sleep(AWAY_SECONDS)
    for way in topology.redis_ways:
        await way.heal()


async def _freeze_one_connection(topology: Topology, _: Load) -> None:
    way = topology.redis_ways[0]
    way.freeze()
    await asyncio.sleep(FROZEN_SECONDS)
    await way.heal()


async def _cut_from_mongo(topology: Topology, _: Load) -> None:
    assert topology.mongo_way is not None
    await topology.mongo_way.cut()
    await asyncio.sleep(MONGO_AWAY_SECONDS)
    await topology.mongo_way.heal()


async def _wipe(topology: Topology, load: Load) -> None:
    async with load.rebuilding():
        async with load.losing():
            await topology.wipe_redis()
        await _wait_until_rebuilt(topology, load)


async def _wait_until_rebuilt(topology: Topology, load: Load) -> None:
    """Until no server has anything left to put back.

    The queue is rebuilt once more for each document that reaches MongoDB after it was rebuilt. None
    is on its way any more when every server has answered a later publish. The rebuild for the last
    one may be about to begin then, which takes less time than a few more publishes.
    """
    quiet, version = 0, None
    async with asyncio.timeout(END_SECONDS):
        while quiet < _QUIET_ROUNDS:
            await load.ask_every_server()
            before, version = version, await topology.version(QUEUE)
            quiet = quiet + 1 if version is not None and version == before else 0


async def _wipe_and_recover(topology: Topology, load: Load) -> None:
    """Redis is wiped while no server runs, and `penstock recover` rebuilds it before they do."""
    for server in topology.servers:
        await asyncio.to_thread(server.end, signal.SIGKILL)
    async with load.rebuilding():
        async with load.losing():
            await topology.wipe_redis()
        await _recover(topology)
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in topology.servers))
        await _wait_until_rebuilt(topology, load)


async def _recover(topology: Topology) -> None:
    assert topology.mongo_way is not None
    command = penstock_command(
        "recover", "--store", topology.redis_url, "--archive", topology.mongo_way.url
    )
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        capture_output=True,
        text=True,
        timeout=_RECOVER_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout[:13]) == (0, "rebuilt: load"), done.stdout + done.stderr


NO_FAULT = Fault(name="none", happen=_no_fault, is_slow=True)
FAULTS = (
    NO_FAULT,
    Fault(name="a server killed", happen=_kill_a_server),
    Fault(name="Redis killed", happen=_kill_redis),
    Fault(name="a server paused", happen=_pause_a_server),
    Fault(name="a server cut off from Redis", happen=_cut_one_from_redis),
    Fault(name="all cut off from Redis", happen=_cut_all_from_redis),
    Fault(name="a server's packets to Redis held up", happen=_freeze_one_connection, is_slow=True),
    Fault(name="none, with an archive", happen=_no_fault, archived=True, is_slow=True),
    Fault(name="MongoDB away", happen=_cut_from_mongo, archived=True),
    Fault(name="Redis wiped", happen=_wipe, archived=True),
    Fault(name="Redis wiped, penstock recover", happen=_wipe_and_recover, archived=True),
)

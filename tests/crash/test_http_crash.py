"""A real server, killed again and again under the load of many clients that outlive it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from random import Random

from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore
from tests.client.server import Server
from tests.crash.load import Load
from tests.crash.test_crash import check_stored
from tests.crash.witness import Witness
from tests.simulation.checker import Checker
from tests.simulation.clients import Clients
from tests.simulation.clock import VirtualClock
from tests.simulation.drain import drain
from tests.simulation.history import History, Violation

ROUNDS = int(os.environ.get("PENSTOCK_CRASH_ROUNDS", "5"))
SEED = int(os.environ.get("PENSTOCK_CRASH_SEED", "1"))


async def test_a_server_killed_under_load_loses_nothing_that_it_answered(tmp_path: Path) -> None:
    # Given a server under the load of many clients, which go on when it comes back
    data = tmp_path / "data"
    clock = VirtualClock(time.time_ns())
    history = History(clock)
    checker = Checker(history)
    witness = Witness(history, checker)
    rng = Random(SEED)
    started = time.monotonic()
    try:
        with Server(str(data), tmp_path / "log") as server:
            async with Load(server.url) as load:
                for number in range(ROUNDS):
                    # When it is killed at some moment
                    await asyncio.sleep(rng.uniform(0, 1))
                    server.end(signal.SIGKILL)

                    # Then all that it had answered is in what it left behind
                    copy = shutil.copytree(data, tmp_path / "copy")
                    store = await WalStore.open(DiskFiles(copy))
                    witness.hear(load.lines, store.machine)
                    load.lines.clear()
                    history.note(f"*** killed, round {number}")
                    await check_stored(store, checker)
                    await store.close()
                    shutil.rmtree(copy)
                    await asyncio.to_thread(server.start)
            server.end(signal.SIGTERM)

        # And in the end every message was taken or is there to be taken, each after the other
        clock.advance(time.monotonic() - started)
        store = await WalStore.open(DiskFiles(data), clock=clock)
        witness.hear(load.lines, store.machine)
        clients = Clients(history, checker)
        clients.use(store)
        await drain(clients, clock)
        await store.close()
    except Violation as exc:
        raise AssertionError(f"{exc}\n{history.about(exc.words)}") from exc
    print(f"{ROUNDS} kills, {witness.published} messages published, {witness.acked} acks")
    assert witness.published > 20 * ROUNDS
    assert witness.acked > 20 * ROUNDS

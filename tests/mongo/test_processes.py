"""Real servers and the command line."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from penstock.broker import Broker
from penstock.client import AsyncClient
from tests.http.server import penstock_command, running
from tests.mongo.conftest import Addresses, Open

_SECONDS = 60


def _recover(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        penstock_command("recover", *options),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


async def test_a_server_killed_before_its_marks_were_written_loses_none(
    addresses: Addresses, tmp_path: Path, open_server: Open, database: Any
) -> None:
    options = ("--store", addresses.redis, "--archive", addresses.mongo)
    # Given a server that is killed right after it answered an ack
    with running(str(tmp_path), tmp_path / "log", *options) as server:
        async with AsyncClient(server.url, username="admin", password="adminpassword") as client:
            await client.create_queue("jobs")
            result = await client.publish("jobs", [b"a", b"b"])
            assert result.durability == "replicated"
            (given,) = await client.receive("jobs", limit=1)
            await client.ack("jobs", [given])
        server.kill()
    # When another one looks after the queue, and then Redis is lost
    store = await open_server()
    await store.copy_all()
    assert await database["jobs"].count_documents({"consumed": True}) == 1
    await store.close()
    await addresses.wipe_redis()
    # Then `penstock recover` brings back what was not settled
    done = await asyncio.to_thread(_recover, *options)
    assert (done.returncode, done.stdout) == (0, "rebuilt: jobs, 2 messages\n")
    again = await asyncio.to_thread(_recover, *options)
    assert (again.returncode, again.stdout) == (0, "Nothing is missing.\n")
    broker = Broker(await open_server())
    assert [d.body for d in await broker.receive("jobs", limit=9)] == [b"b"]


def test_recover_says_what_it_needs() -> None:
    done = _recover("--store", "redis://127.0.0.1:1")
    assert (done.returncode, "--archive mongodb://" in done.stderr) == (2, True)

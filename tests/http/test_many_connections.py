"""A thousand clients that wait and two hundred that are busy, at the same time.

The latency is printed, not judged: ``pytest tests/http/test_many_connections.py -s``.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.http.client import basic
from tests.http.server import Server, running

WAITING = 1000
BUSY = 200
CYCLES = 3  # of push, pop and ack, on each busy connection
MEBIBYTE = 2**20
CONNECTION_BYTES = 64 * 1024  # with a request in it
MESSAGE_BYTES = 2 * 1024  # in the cache of the newest, with what is kept about it
QUIET = "/v1/queues/quiet"
POLL = b'{"limit": 1, "wait_seconds": 20}'
BATCH = {"Content-Type": "application/vnd.penstock.batch+json"}
AUTHORIZATION = basic("admin", "adminpassword")


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"a process may have {hard} files here, and this needs 4,096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Connection:
    """One that is kept, with no more than the reading of an answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: {AUTHORIZATION}"]
        lines += [f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, _, rest = head.partition(b"content-length:")
        answer = await self._reader.readexactly(int(rest.split(b"\r\n")[0] or b"0"))
        assert int(head.split(b" ", 2)[1]) in (200, 201), (head, answer)
        return answer

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    opened = [Connection(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(count)]
    try:
        yield opened
    finally:
        await asyncio.gather(*(connection.close() for connection in opened))


def resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


async def wait(connection: Connection) -> int:
    """Until there is a message; its index."""
    while True:
        answer = await connection.ask("POST", f"{QUIET}/subscriptions/default/receive", POLL)
        if deliveries := json.loads(answer)["deliveries"]:
            return int(deliveries[0]["index"])


async def work(connection: Connection, group: str) -> list[float]:
    """Cycles of push, pop and ack; how long each request took."""
    took = []

    async def timed(method: str, path: str, body: bytes = b"") -> bytes:
        began = time.perf_counter()
        answer = await connection.ask(method, path, body, consumerGroup=group)
        took.append(time.perf_counter() - began)
        return answer

    for _ in range(CYCLES):
        await timed("POST", "/queue/push", b"x" * 256)
        popped = json.loads(await timed("GET", "/queue/pop"))
        await timed("POST", f"/queue/ack?id={popped['id']}")
    return took


async def load(server: Server) -> tuple[int, list[float]]:
    """The memory of the server at the height of it, and the times of the busy requests."""
    batch = {"messages": [{"body": "x"}] * WAITING}
    async with (
        connections(server.port, WAITING) as waiting,
        connections(server.port, BUSY) as busy,
    ):
        # Given a thousand who wait for a message
        polls = [asyncio.create_task(wait(one)) for one in waiting]
        # When two hundred others work
        groups = [work(one, f"group-{number}") for number, one in enumerate(busy)]
        took = [seconds for each in await asyncio.gather(*groups) for seconds in each]
        resident = resident_bytes(server)
        # Then they are served, and each of the thousand gets its message when it comes
        await busy[0].ask("POST", f"{QUIET}/messages", json.dumps(batch).encode(), **BATCH)
        assert len(set(await asyncio.gather(*polls))) == WAITING
    return resident, sorted(took)


async def test_idle_long_polls_and_busy_connections_at_once(
    log: Path, tmp_path: Path, many_files: None
) -> None:
    with running(str(tmp_path / "data"), log) as server:
        async with connections(server.port, 1) as [admin]:
            await admin.ask("POST", "/v1/queues", b'{"name": "quiet"}')
        empty = resident_bytes(server)
        first, _ = await load(server)
        again, took = await load(server)
        # And the memory is that of the connections, once: the second time needs no more
        assert first - empty < (WAITING + BUSY) * CONNECTION_BYTES
        stored = WAITING + BUSY * CYCLES
        assert again - first < stored * MESSAGE_BYTES + 4 * MEBIBYTE
        assert [line for line in server.log_lines() if line["level"] == "error"] == []
    median, slow = (took[int(len(took) * share)] * 1000 for share in (0.5, 0.99))
    print(
        f"\n{len(took)} requests beside {WAITING} long polls: median {median:.1f} ms, "
        f"p99 {slow:.1f} ms; memory {empty / MEBIBYTE:.0f} MiB, then "
        f"{first / MEBIBYTE:.0f} MiB, then {again / MEBIBYTE:.0f} MiB"
    )

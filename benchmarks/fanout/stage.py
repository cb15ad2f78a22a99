"""A Penstock server, the endpoint that it calls, and a publisher, for as long as a block runs."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.fanout.bodies import make_body
from benchmarks.fanout.endpoint import Arrivals, stamped
from benchmarks.fanout.run import Run
from benchmarks.http.penstock_server import Address, penstock_server
from benchmarks.http.service import free_port, running
from penstock.client import AsyncClient

ROOT = Path(__file__).parents[2]
_numbers = count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    penstock: Address
    endpoint: str
    admin: AsyncClient
    session: aiohttp.ClientSession

    async def queue(self) -> str:
        """A new one, without its default subscription."""
        name = f"bench-{next(_numbers)}"
        await self.admin.create_queue(name)
        await self.admin.delete_subscription(name, "default")
        return name

    async def subscribe(self, queue: str, name: str, path: str, **settings: Any) -> None:
        callback = {"url": f"{self.endpoint}/{path}"}
        if "concurrency" in settings:
            callback["concurrency"] = settings.pop("concurrency")
        await self.admin.create_subscription(queue, name, callback=callback, **settings)

    async def publish(self, queue: str, body: bytes) -> None:
        """One message, as any HTTP client would."""
        url = f"{self.penstock.url}/v1/queues/{queue}/messages"
        async with self.session.post(url, data=stamped(body)) as response:
            await response.read()
            response.raise_for_status()

    async def post(self, body: bytes) -> None:
        """The same to the endpoint itself."""
        async with self.session.post(f"{self.endpoint}/bare", data=stamped(body)) as response:
            await response.read()

    async def wait_for(self, calls: int) -> None:
        async with self.session.get(f"{self.endpoint}/wait/{calls}") as response:
            await response.read()

    async def take(self) -> Arrivals:
        async with self.session.get(f"{self.endpoint}/take") as response:
            return msgspec.json.decode(await response.read(), type=Arrivals)

    async def latencies(self, queue: str, singles: int, calls_each: int) -> Arrivals:
        """Publish one at a time, each when the one before has led to all of its calls."""
        body = make_body()
        await self.take()
        for number in range(1, singles + 1):
            await self.publish(queue, body)
            await self.wait_for(number * calls_each)
        return await self.take()

    async def run_bare(self, calls: int, concurrency: int) -> Arrivals:
        """In a process of its own, as the server is one."""
        await self.take()
        arguments = [f"{self.endpoint}/bare", str(calls), str(concurrency)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.fanout.bare", *arguments, cwd=ROOT
        )
        if await process.wait():
            raise RuntimeError("the bare client failed")
        return await self.take()


def rate(arrivals: Arrivals) -> float:
    """Calls a second, from the first to the last."""
    return (arrivals.count - 1) / (arrivals.last_ns - arrivals.first_ns) * 1e9


def milliseconds(latencies_ns: Sequence[int], part: float) -> float:
    """A percentile: 0.5 is the median."""
    ordered = sorted(latencies_ns)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1e6


@asynccontextmanager
async def stage(run: Run) -> AsyncIterator[Stage]:
    port = free_port()
    command = [sys.executable, str(ROOT / "benchmarks/fanout/endpoint.py"), str(port)]
    login = base64.b64encode(b"admin:adminpassword").decode()
    with (
        run.fresh_directory("endpoint") as there,
        run.fresh_directory("penstock") as here,
        running(command, port=port, directory=there),
        penstock_server(here) as penstock,
    ):
        async with (
            penstock.admin() as admin,
            aiohttp.ClientSession(headers={"Authorization": f"Basic {login}"}) as session,
        ):
            yield Stage(
                penstock=penstock,
                endpoint=f"http://127.0.0.1:{port}",
                admin=admin,
                session=session,
            )

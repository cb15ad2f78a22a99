from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from benchmarks.fanout.endpoint import Arrivals, stamped
from benchmarks.fanout.stage import ROOT, milliseconds, rate
from benchmarks.http.service import free_port, running


def test_a_rate_is_taken_from_the_first_call_to_the_last() -> None:
    assert rate(Arrivals(count=11, first_ns=0, last_ns=2_000_000_000)) == 5


def test_a_percentile_is_one_of_the_figures() -> None:
    figures = [n * 1_000_000 for n in range(1, 101)]
    assert milliseconds(figures, 0.5) == 51
    assert milliseconds(figures, 0.99) == 100
    assert milliseconds(figures[:1], 0.99) == 1


async def test_the_endpoint_notes_what_came_when(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, str(ROOT / "benchmarks/fanout/endpoint.py"), str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(command, port=port, directory=tmp_path):
        async with aiohttp.ClientSession() as session:
            waiting = asyncio.create_task(session.get(f"{url}/wait/3"))
            for path in ("a", "b", "a"):
                assert not waiting.done()
                async with session.post(f"{url}/{path}", data=stamped(b"x" * 64)) as response:
                    assert response.status == 200
            (await asyncio.wait_for(waiting, 30)).release()
            async with session.get(f"{url}/take") as response:
                arrivals = msgspec.json.decode(await response.read(), type=Arrivals)
            with pytest.raises(TimeoutError):
                await session.post(
                    f"{url}/hang/x", data=b"x" * 64, timeout=aiohttp.ClientTimeout(total=0.1)
                )
    assert arrivals.count == 3
    assert sorted(arrivals.latencies) == ["/a", "/b"]
    assert len(arrivals.latencies["/a"]) == 2
    assert min(arrivals.latencies["/a"]) > 0
    assert arrivals.first_ns < arrivals.last_ns

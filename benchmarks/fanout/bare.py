"""The reference: an aiohttp client that posts bodies, and does nothing else.

``python bare.py <url> <count> <concurrency>``, in a process of its own, as the server is.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop

from benchmarks.fanout.bodies import make_body
from benchmarks.fanout.endpoint import stamped


async def post_all(url: str, count: int, concurrency: int) -> None:
    numbers = iter(range(count))
    body = make_body()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker() -> None:
            for _ in numbers:
                async with session.post(url, data=stamped(body)) as response:
                    await response.read()

        await asyncio.gather(*(worker() for _ in range(concurrency)))


if __name__ == "__main__":
    uvloop.run(post_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

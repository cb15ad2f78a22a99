"""Redis Streams through redis-py."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from benchmarks.harness.sample import Sample
from benchmarks.http.scale import CONNECTIONS
from benchmarks.http.service import free_port, running

if TYPE_CHECKING:
    from redis.asyncio import Redis as Client

STREAM = "bench"


class Redis:
    """XADD with the append-only file synced before each answer; a connection for each caller."""

    name: ClassVar[str] = "redis-py XADD, AOF always"
    needs: ClassVar[str] = "Redis: apt-get install redis-server; pip: penstock[redis]"
    durability: ClassVar[str] = "everything that was confirmed"

    def __init__(self, client: Client) -> None:
        self._client: Any = client

    @classmethod
    def is_installed(cls) -> bool:
        return shutil.which("redis-server") is not None and find_spec("redis") is not None

    @classmethod
    @contextmanager
    def running(cls, directory: Path) -> Iterator[int]:
        port = free_port()
        command = [
            *["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory)],
            *["--appendonly", "yes", "--appendfsync", "always", "--save", ""],
        ]
        with running(command, port=port, directory=directory):
            yield port

    @classmethod
    @asynccontextmanager
    async def connected(cls, server: int) -> AsyncIterator[Self]:
        from redis.asyncio import BlockingConnectionPool
        from redis.asyncio import Redis as Client

        pool = BlockingConnectionPool(host="127.0.0.1", port=server, max_connections=CONNECTIONS)
        async with Client.from_pool(pool) as client:
            yield cls(client)

    async def publish(self, body: bytes) -> None:
        await self._client.xadd(STREAM, {"body": body})

    async def publish_many(self, bodies: list[bytes]) -> None:
        await asyncio.gather(*map(self.publish, bodies))

    async def consume(self, seconds: float, limit: int) -> Sample:
        raise NotImplementedError("there is no bar for it")

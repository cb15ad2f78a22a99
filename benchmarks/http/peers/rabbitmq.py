"""RabbitMQ through aio-pika."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from benchmarks.harness.sample import Sample
from benchmarks.http.count import Count
from benchmarks.http.service import free_port, running

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

QUEUE = "bench"
PREFETCH = 100
# Where Debian keeps the script that does not insist on the system's user and directories.
SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitMq:
    """A durable classic queue, persistent messages, publisher confirms, one connection."""

    name: ClassVar[str] = "aio-pika on RabbitMQ"
    needs: ClassVar[str] = (
        "RabbitMQ: apt-get install rabbitmq-server, pip install 'penstock[bench]'"
    )
    durability: ClassVar[str] = "everything that was confirmed"

    def __init__(self, channel: AbstractChannel, queue: AbstractQueue) -> None:
        self._channel = channel
        self._queue = queue

    @classmethod
    def is_installed(cls) -> bool:
        has_server = SCRIPT.exists() and shutil.which("epmd") is not None
        return has_server and find_spec("aio_pika") is not None

    @classmethod
    @contextmanager
    def running(cls, directory: Path) -> Iterator[int]:
        port, names_port = free_port(), free_port()
        config = directory / "rabbitmq.conf"
        config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        environment = {
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        }
        names = directory / "epmd"
        names.mkdir()
        with (
            # Its own name server, or the node would start one that outlives it.
            running(["epmd"], port=names_port, directory=names, environment=environment),
            running([str(SCRIPT)], port=port, directory=directory, environment=environment),
        ):
            yield port

    @classmethod
    @asynccontextmanager
    async def connected(cls, server: int) -> AsyncIterator[Self]:
        import aio_pika

        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{server}/")
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=PREFETCH)
            yield cls(channel, await channel.declare_queue(QUEUE, durable=True))

    async def publish(self, body: bytes) -> None:
        from aio_pika import DeliveryMode, Message

        message = Message(body, delivery_mode=DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, routing_key=QUEUE)

    async def publish_many(self, bodies: list[bytes]) -> None:
        await asyncio.gather(*map(self.publish, bodies))

    async def consume(self, seconds: float, limit: int) -> Sample:
        count = Count(seconds, limit)

        async def handle(message: AbstractIncomingMessage) -> None:
            await message.ack()
            count.add()

        tag = await self._queue.consume(handle)
        sample = await count.reached()
        await self._queue.cancel(tag)
        return sample

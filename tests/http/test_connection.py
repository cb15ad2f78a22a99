"""A connection by itself, without a server around it."""

from __future__ import annotations

import gc

from penstock.broker import Broker
from penstock.http.app import create_app
from penstock.settings import Settings
from penstock.storage.registry import open_store
from tests.http.client import basic
from tests.http.in_process import connect

PUSH = (
    "POST /queue/push HTTP/1.1\r\nHost: a\r\nconsumerGroup: orders\r\n"
    f"Authorization: {basic('user', 'password')}\r\nContent-Length: 5\r\n\r\nhello"
).encode()


async def test_a_request_leaves_nothing_for_the_garbage_collector() -> None:
    # Given a connection on which there were some requests
    async with Broker(await open_store("memory:")) as broker:
        app = await create_app(broker, Settings(data="memory:"))
        await app.start()  # type: ignore[no-untyped-call]
        connection, wire = connect(app)

        async def ask() -> None:
            connection.data_received(PUSH)
            await wire.more()
            assert wire.written.pop().startswith(b"HTTP/1.1 200 OK\r\n")

        for _ in range(10):
            await ask()
        gc.collect()
        gc.disable()

        # When there are more
        try:
            for _ in range(100):
                await ask()

            # Then reference counts have freed all of it
            assert gc.collect() < 100
        finally:
            gc.enable()

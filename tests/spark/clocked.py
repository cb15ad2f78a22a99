"""A real server in a thread of the test, whose clock the test moves."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from penstock.broker import Broker
from penstock.http.app import create_app
from penstock.server import server_options
from penstock.settings import Settings
from penstock.storage.registry import open_store

__all__ = ["ClockedServer", "clocked_server"]


class ClockedServer:
    """Its clock is the machine's, `ahead_seconds` later."""

    def __init__(self, ahead_seconds: float) -> None:
        self.ahead_seconds = ahead_seconds
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self._ready = threading.Event()

    def now_ns(self) -> int:
        return time.time_ns() + int(self.ahead_seconds * 1e9)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with Broker(await open_store("memory:", clock=self)) as broker:
            app = await create_app(broker, Settings(data="memory:"), clock=self)
            config = uvicorn.Config(app, **{**server_options(), "log_level": "critical"})
            self._uvicorn = uvicorn.Server(config)
            self._ready.set()
            await self._uvicorn.serve([self.listener])

    def wait(self) -> None:
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._uvicorn.should_exit = True


@contextmanager
def clocked_server(ahead_seconds: float = 0) -> Iterator[ClockedServer]:
    server = ClockedServer(ahead_seconds)
    thread = threading.Thread(target=server.run)
    thread.start()
    server.wait()
    try:
        yield server
    finally:
        server.stop()
        thread.join(15)
        server.listener.close()
        assert not thread.is_alive()

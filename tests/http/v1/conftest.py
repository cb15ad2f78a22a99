"""A real server on a free port, and a small client that speaks plain HTTP to it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import msgspec
import pytest
import uvicorn

from penstock.broker import Broker
from penstock.http.app import create_app
from penstock.server import server_options
from penstock.settings import Settings
from penstock.storage.registry import open_store

ADMIN = "admin:adminpassword"
USER = "user:password"
_numbers = count(1)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Server:
    """Runs in a thread, over the memory store. `stop` does what a signal does."""

    def __init__(self) -> None:
        # With its protocol named: asyncio sends small answers at once on such sockets alone.
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(512)
        self.port: int = self.listener.getsockname()[1]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Broker(await open_store("memory:")) as broker:
            self.broker = broker
            app = await create_app(broker, Settings(data="memory:"))
            config = uvicorn.Config(app, **{**server_options(), "log_level": "critical"})
            self._uvicorn = uvicorn.Server(config)
            self._ready.set()
            await self._uvicorn.serve([self.listener])

    def stop(self) -> None:
        def stop() -> None:
            self._uvicorn.should_exit = True
            self.broker.stop_waiting()

        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(stop)
            self._thread.join(15)
        assert not self._thread.is_alive()
        self.listener.close()


class Api:
    """One connection, as one user."""

    def __init__(self, port: int, user: str | None = ADMIN) -> None:
        self._port = port
        self._user = user
        self._others: list[Api] = []
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)

    def anew(self, user: str | None = ADMIN) -> Api:
        """Another connection, which is closed with this one."""
        other = Api(self._port, user)
        self._others.append(other)
        return other

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str | bytes] | None = None,
    ) -> Reply:
        headers = dict(headers or {})
        if self._user is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(self._user.encode()).decode()
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        lowered = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, lowered, content)

    def call(self, method: str, path: str, value: Any = None) -> Reply:
        body = None if value is None else msgspec.json.encode(value)
        return self.send(method, path, body, {"Content-Type": "application/json"} if body else {})

    def get(self, path: str) -> Reply:
        return self.call("GET", path)

    def post(self, path: str, value: Any = None) -> Reply:
        return self.call("POST", path, value)

    def hang_up(self) -> None:
        """While another thread waits for an answer."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()
        for other in self._others:
            other.close()


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    """As an admin."""
    api = Api(server.port)
    yield api
    api.close()


@pytest.fixture
def user(server: Server) -> Iterator[Api]:
    api = Api(server.port, USER)
    yield api
    api.close()


@pytest.fixture
def queue(api: Api) -> str:
    """The path of a new queue."""
    name = f"q{next(_numbers)}"
    assert api.post("/v1/queues", {"name": name}).status == 201
    return f"/v1/queues/{name}"

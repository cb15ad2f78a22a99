"""An application without a server: for what a real one cannot be brought to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast

import uvicorn
from blacksheep import Application
from uvicorn.server import ServerState

from penstock.broker import Broker
from penstock.clock import Clock
from penstock.http.app import create_app
from penstock.http.connection import Connection
from penstock.settings import Settings
from tests.http.client import Answer, basic

__all__ = ["InProcess", "Wire", "application", "configured", "connect"]


class Wire:
    """A transport that ends in a list."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.on_write: Callable[[], None] = lambda: None
        self._has_closed = False
        self._news = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))
        self._news.set()
        self.on_write()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    def is_closing(self) -> bool:
        return self._has_closed

    def close(self) -> None:
        self._has_closed = True
        self._news.set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    async def more(self) -> None:
        """Until something is written, or the connection closed."""
        self._news.clear()
        await self._news.wait()


def configured(app: Application) -> uvicorn.Config:
    return uvicorn.Config(app, http=cast(Any, Connection), log_config=None, log_level="critical")


def connect(config: uvicorn.Config) -> tuple[Connection, Wire]:
    connection, wire = Connection(config, ServerState(), {}), Wire()
    connection.connection_made(cast(asyncio.BaseTransport, wire))
    return connection, wire


class InProcess:
    def __init__(self, app: Application) -> None:
        self._config = configured(app)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: str = "",
        name: str = "user",
        **headers: str,
    ) -> Answer:
        connection, wire = connect(self._config)
        given = {"content-length": str(len(body)), **headers}
        connection.data_received(_head(method, f"{path}?{query}", name, given) + body)
        while (answer := _parse(b"".join(wire.written))) is None:
            await wire.more()
        connection.connection_lost(None)
        return answer

    async def stream(
        self, method: str, path: str, *, leave_after: int | None, name: str = "user", **headers: str
    ) -> list[bytes]:
        """The chunks of an answer. The client may go away after some of them."""
        connection, wire = connect(self._config)

        def leave() -> None:
            if len(wire.written) == leave_after:
                connection.connection_lost(None)
                wire.close()

        wire.on_write = leave
        connection.data_received(_head(method, path, name, {**headers, "connection": "close"}))
        while not wire.is_closing():
            await wire.more()
        return [part for data in wire.written[1:] for part in _chunks(data)]


def _head(method: str, target: str, name: str, headers: dict[str, str]) -> bytes:
    passwords = {"user": "password", "admin": "adminpassword"}
    given = {"host": "a", "authorization": basic(name, passwords[name]), **headers}
    lines = [f"{method} {target} HTTP/1.1", *(f"{key}: {value}" for key, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _parse(data: bytes) -> Answer | None:
    """None while it is not whole."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    if len(body) < int(headers.get("content-length", 0)):
        return None
    return Answer(int(first.split()[1]), headers, body)


def _chunks(data: bytes) -> Iterator[bytes]:
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        yield rest[:length]
        data = rest[length + 2 :]


@cache
def _settings(**given: Any) -> Settings:
    return Settings.model_validate({"data": "memory:", **given})


@asynccontextmanager
async def application(
    broker: Broker, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[InProcess]:
    app = await create_app(broker, _settings(**settings), clock)
    await app.start()  # type: ignore[no-untyped-call]
    try:
        yield InProcess(app)
    finally:
        await app.stop()  # type: ignore[no-untyped-call]

"""An application without a server: for what a real one cannot be brought to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from blacksheep import Application

from penstock.broker import Broker
from penstock.http.app import create_app
from penstock.settings import Settings
from tests.http.client import Answer, basic

__all__ = ["InProcess", "application"]


class InProcess:
    def __init__(self, app: Application) -> None:
        self._app = app

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
        scope = _scope(method, path, query, name, {"content-length": str(len(body)), **headers})
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        found = {key.decode().lower(): value.decode() for key, value in sent[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], found, content)

    async def stream(
        self, method: str, path: str, *, leave_after: int | None, name: str = "user", **headers: str
    ) -> list[bytes]:
        """The parts of an answer. The client may go away after some of them."""
        parts: list[bytes] = []
        is_gone = asyncio.Event()
        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await is_gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            parts.append(message.get("body", b""))
            if len(parts) == leave_after:
                is_gone.set()
            await asyncio.sleep(0)

        await self._app(_scope(method, path, "", name, headers), receive, send)
        return parts


def _scope(
    method: str, path: str, query: str, name: str, headers: dict[str, str]
) -> dict[str, Any]:
    passwords = {"user": "password", "admin": "adminpassword"}
    given = {"authorization": basic(name, passwords[name]), **headers}
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(key.lower().encode(), value.encode()) for key, value in given.items()],
    }


@asynccontextmanager
async def application(broker: Broker, **settings: Any) -> AsyncIterator[InProcess]:
    app = await create_app(broker, Settings.model_validate({"data": "memory:", **settings}))
    await app.start()  # type: ignore[no-untyped-call]
    try:
        yield InProcess(app)
    finally:
        await app.stop()  # type: ignore[no-untyped-call]

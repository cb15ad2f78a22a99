"""A callback server of the test's own, which answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from aiohttp import web
from multidict import CIMultiDictProxy

__all__ = ["Call", "Receiver", "answering"]

PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Call:
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def index(self) -> int:
        return int(self.headers["Penstock-Index"])

    @property
    def subscription(self) -> str:
        return self.headers["Penstock-Subscription"]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


Behaviour = Callable[[Call], Awaitable[web.StreamResponse]]


def answering(*statuses: int, text: str = "") -> Behaviour:
    """One after the other, and the last of them from then on."""
    left = list(statuses)

    async def behave(call: Call) -> web.StreamResponse:
        status = left.pop(0) if len(left) > 1 else left[0]
        return web.Response(status=status, text=text)

    return behave


class Receiver:
    """Listens on loopback. `behave` may be changed at any time; it begins with 204."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self.calls: list[Call] = []
        self.behave: Behaviour = answering(204)
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**22)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, shutdown_timeout=0.05, access_log=None
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, 0)
        await site.start()
        self.port: int = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def url(self, path: str = "hook") -> str:
        return f"http://{self._host}:{self.port}/{path}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.path, request.headers, await request.read())
        self.calls.append(call)
        await self._tell()
        try:
            return await self.behave(call)
        finally:
            await self._tell()

    async def _tell(self) -> None:
        """Those who wait look again when a call has come, and when it is answered."""
        async with self._arrived:
            self._arrived.notify_all()

    async def until(self, condition: Callable[[Sequence[Call]], bool]) -> list[Call]:
        """All calls, once they are as they should be."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: condition(self.calls))
        return self.calls

    async def wait_for(self, count: int) -> list[Call]:
        return await self.until(lambda calls: len(calls) >= count)

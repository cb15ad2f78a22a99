"""A small HTTP server that receives callbacks, for ``penstock listen``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal
from urllib.parse import unquote

import msgspec
from aiohttp import web

from penstock.cannot_listen import cannot_listen
from penstock.client import InvalidSignature, WebhookVerifier
from penstock.clock import SystemClock
from penstock.core.limits import MAX_BODY_BYTES
from penstock.core.message import to_datetime

__all__ = ["Arrival", "Inbox", "Receiver"]

_ATTRIBUTE = "penstock-attribute-"
_STOP_SECONDS = 2.0


Verdict = Literal["verified", "refused", "unchecked"]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A call that came in.

    `verdict` is ``unchecked`` without a secret; `problem` says why it is ``refused``.
    """

    received_at: datetime
    verdict: Verdict
    problem: str | None
    id: str | None
    queue: str | None
    subscription: str | None
    index: int | None
    deliveries: int | None
    topic: str | None
    group_key: str | None
    attributes: dict[str, str]
    content_type: str
    body: str | None
    body_base64: bytes | None

    @property
    def content(self) -> bytes:
        return self.body.encode() if self.body is not None else self.body_base64 or b""


Inbox = asyncio.Queue[tuple[Arrival, asyncio.Future[None]]]
"""What came in, and a future to set once it is printed: only then is the call answered."""


class Receiver:
    """Answers with ``status`` to a call that it can verify, and with 401 to others."""

    def __init__(self, secrets: list[str], *, status: int) -> None:
        self._secrets = secrets
        self._status = status
        self._verifier: WebhookVerifier | None = None
        self._is_open = asyncio.Event()
        self._inbox: Inbox = asyncio.Queue()
        self._waiting: set[asyncio.Future[None]] = set()

    def open(self, *more: str) -> None:
        """Accept calls signed with these secrets or those given before; without any, all calls."""
        secrets = [*self._secrets, *more]
        self._verifier = WebhookVerifier(*secrets) if secrets else None
        self._is_open.set()

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[tuple[str, Inbox]]:
        """Yields its URL and its inbox. Raises `InvalidArgument` when it cannot listen there."""
        app = web.Application(client_max_size=2 * MAX_BODY_BYTES)
        app.router.add_post("/{path:.*}", self._receive)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_SECONDS)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as exc:
                raise cannot_listen(host, port, exc) from exc
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{runner.addresses[0][1]}/", self._inbox
        finally:
            for printed in self._waiting:
                printed.cancel()
            await runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        # The first call may come before the answer with the secret to verify it.
        await self._is_open.wait()
        arrival = self._look_at(request.headers, body)
        printed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(printed)
        self._inbox.put_nowait((arrival, printed))
        try:
            await asyncio.wait([printed])
        finally:
            self._waiting.discard(printed)
        if printed.cancelled():
            return web.Response(status=503)
        return web.Response(status=401 if arrival.verdict == "refused" else self._status)

    def _look_at(self, headers: Mapping[str, str], body: bytes) -> Arrival:
        verdict: Verdict = "unchecked"
        problem = None
        if self._verifier is not None:
            try:
                self._verifier.verify(headers, body)
                verdict = "verified"
            except InvalidSignature as exc:
                verdict, problem = "refused", str(exc)
        try:
            text: str | None = body.decode()
        except UnicodeDecodeError:
            text = None
        return Arrival(
            received_at=to_datetime(SystemClock().now_ns()),
            verdict=verdict,
            problem=problem,
            id=headers.get("webhook-id"),
            queue=headers.get("Penstock-Queue"),
            subscription=headers.get("Penstock-Subscription"),
            index=_number(headers.get("Penstock-Index")),
            deliveries=_number(headers.get("Penstock-Deliveries")),
            topic=_text(headers.get("Penstock-Topic")),
            group_key=_text(headers.get("Penstock-Group-Key")),
            attributes={
                unquote(name[len(_ATTRIBUTE) :]): unquote(value)
                for name, value in headers.items()
                if name.lower().startswith(_ATTRIBUTE)
            },
            content_type=headers.get("Content-Type", ""),
            body=text,
            body_base64=None if text is not None else body,
        )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None


def _text(value: str | None) -> str | None:
    return None if value is None else unquote(value)

"""One connection to a server: HTTP/1.1, one request at a time."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast

import httptools

__all__ = ["Answer", "Connection"]


class Answer(NamedTuple):
    """`headers` are as they came, because hardly anybody looks at them."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> str | None:
        """The header of this name, which is in lower case."""
        found = (value for given, value in self.headers if given.lower() == name)
        value = next(found, None)
        return None if value is None else value.decode("latin-1")


class Connection(asyncio.Protocol):
    """Does as little as possible: a request is one write, and its answer one future."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._is_reusable = False
        self.idle_since = 0.0
        self.lost: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_usable(self) -> bool:
        """Whether it can take another request."""
        return self._is_reusable and not self.lost.done() and not self._transport.is_closing()

    async def request(self, data: bytes, seconds: float) -> Answer:
        """Raises `TimeoutError`, and `OSError` when the connection ends before the answer does."""
        self._is_reusable = False
        self._headers = []
        self._parts = []
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answer = answer
        if self.lost.done():
            raise ConnectionResetError("the connection ended")
        timer = self._loop.call_later(seconds, self._expire, answer)
        self._transport.write(data)
        try:
            return await answer
        finally:
            timer.cancel()
            self._answer = None
            if not self._is_reusable:
                # Whatever still comes in belongs to nobody.
                self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def _expire(self, answer: asyncio.Future[Answer]) -> None:
        if not answer.done():
            answer.set_exception(TimeoutError())

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._answer is None:
            self._transport.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:
            self._fail(OSError(f"the answer is not HTTP: {exc}"))
        except httptools.HttpParserUpgrade:
            self._fail(OSError("the server wants to speak another protocol"))

    def eof_received(self) -> None:
        """The transport closes itself; nothing more can come."""

    def connection_lost(self, error: Exception | None) -> None:
        self._parser = None  # which refers back
        self.lost.set_result(None)
        self._fail(error or ConnectionResetError("the server closed the connection"))

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        if status < 200:
            return  # 100 Continue: the answer is yet to come
        self._is_reusable = parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            parts = self._parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._answer.set_result(Answer(status, self._headers, body))

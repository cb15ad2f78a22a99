"""One request and its answer.

The framework gets from a connection to a handler through ASGI: a dozen calls and dictionaries,
which together take longer than most of our requests. Here its application, request and response
are used without ASGI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl

from blacksheep import Application, Request, Response
from blacksheep.contents import Content, StreamedContent

from penstock.errors import InvalidArgument
from penstock.http.auth.user import User
from penstock.http.errors import Refused
from penstock.http.outlet import Outlet

if TYPE_CHECKING:
    from penstock.http.connection import Connection

__all__ = ["ClientGone", "Exchange", "IncomingRequest"]

# How much of a body is read ahead, before a handler asks for it.
MAX_WAITING_BYTES = 64 * 1024
# From here on, an answer is not copied to put its head before it.
_LONG_BYTES = 64 * 1024

logger = logging.getLogger("penstock.http")


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class IncomingRequest(Request):
    """A request whose headers are in a dictionary, because a handler looks up ten of them.

    `first` holds the first header of each name. `caller` is the user who sent the request; the gate
    sets it where the route asks for a role. `refused`: why it is to be refused, whatever it asks
    for.
    """

    exchange: Exchange
    caller: User
    refused: Refused | None = None

    def __init__(
        self, method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """The names of ``headers`` are in lower case."""
        super().__init__(method, None, headers)  # type: ignore[arg-type]
        self._path = path
        self._raw_query = query
        self._parameters: dict[str, str] | None = None
        self.first = dict(reversed(headers))

    def parameter(self, name: str) -> str | None:
        """The query's first parameter of this name; None if there is none, or it is blank.

        Raises `InvalidArgument` when the query is not UTF-8.
        """
        if self._parameters is None:
            self._parameters = _parse_query(self._raw_query)
        return self._parameters.get(name)


def _parse_query(query: bytes) -> dict[str, str]:
    if not query:
        return {}
    if b"%" in query or b"+" in query or not query.isascii():
        try:
            pairs = parse_qsl(query.decode())
        except ValueError:
            raise InvalidArgument("the query is not UTF-8") from None
    else:
        # As nearly all are. The library's parser takes longer than an ack.
        parts = (part.partition("=") for part in query.decode("ascii").split("&"))
        pairs = [(name, value) for name, _, value in parts if value]
    return dict(reversed(pairs))


class Exchange:
    """Hands a request to the application and the answer to the connection."""

    __slots__ = (
        "_connection",
        "_parts",
        "_waiter",
        "_waiting_bytes",
        "expects_continue",
        "has_begun",
        "is_answered",
        "is_cut_short",
        "is_gone",
        "is_hung_up",
        "is_kept_alive",
        "is_whole",
        "request",
        "takes_chunks",
        "task",
    )

    def __init__(
        self,
        connection: Connection,
        request: IncomingRequest,
        *,
        is_kept_alive: bool,
        takes_chunks: bool,
    ) -> None:
        """``takes_chunks``: otherwise an answer of unknown length ends with the connection."""
        self._connection = connection
        self.request = request
        self.task: asyncio.Task[None] | None = None
        request.exchange = self
        self.is_kept_alive = is_kept_alive
        self.takes_chunks = takes_chunks
        self.expects_continue = False
        # The request.
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self.is_whole = False
        self.is_hung_up = False  # the client sends no more
        self.is_gone = False
        # The answer.
        self.has_begun = False
        self.is_cut_short = False  # answered before the request was whole
        self.is_answered = False

    def let_go(self) -> None:
        """Break the reference cycles that the exchange is part of: cycles are freed late."""
        self.task = None
        del self.request.exchange

    # The request, as it comes in.

    def add(self, part: bytes) -> None:
        self._parts.append(part)
        self._waiting_bytes += len(part)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._connection.pause_reading()
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        self.is_whole = True
        if self._waiter is not None:
            self._wake()

    def leave(self) -> None:
        """The client has left."""
        if not self.is_answered:
            self.is_gone = True
        self._wake()

    def hang_up(self) -> None:
        """The client has closed its side, which is also the first that is seen of its leaving."""
        self.is_hung_up = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        """Wait for more of the body, or for the client to leave."""
        connection = self._connection
        if self.expects_continue:
            self.expects_continue = False
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _take(self) -> bytes:
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._waiting_bytes = 0
        return body

    async def read(self) -> bytes:
        """The whole body. Raises `ClientGone`."""
        while not self.is_whole:
            if self.is_gone:
                raise ClientGone
            await self._wait()
        return self._take()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body, part by part as it comes in. Raises `ClientGone`."""
        while self._parts or not self.is_whole:
            if self._parts:
                yield self._take()
            elif self.is_gone:
                raise ClientGone
            else:
                await self._wait()

    async def hung_up(self) -> None:
        """As `left`, or until the client has closed its side: it then waits for nothing more."""
        while not (self.is_hung_up or self.is_gone or self.is_answered):
            await self._wait()

    async def left(self) -> None:
        """Wait until the client has left, or was answered. The body must have been read before."""
        while not (self.is_gone or self.is_answered):
            await self._wait()

    # The answer.

    async def run(self, app: Application) -> None:
        """Have the application handle the request, and send its answer."""
        connection = self._connection
        try:
            response = await app.handle(self.request)
            if not self.is_gone:
                await self._send(response)
        except Exception:
            logger.exception("a request could not be answered")
            if not self.has_begun and not self.is_gone:
                self.is_kept_alive = False
                await self._send(Response(HTTPStatus.INTERNAL_SERVER_ERROR))
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            connection.ended(self)

    async def _send(self, response: Response) -> None:
        connection = self._connection
        content = response.content
        self.has_begun = True
        self.is_cut_short = not self.is_whole
        self.expects_continue = False
        if content is None or (content.length >= 0 and type(content) is not StreamedContent):
            body = content.body if content and self.request.method != "HEAD" else b""
            head = self._head(response, content)
            if len(body) < _LONG_BYTES:
                # In one write, so that a short answer is one packet.
                connection.write(head + body)
            else:
                # Not joined, so that it is in memory once while the client takes its time.
                connection.write_all((head, body))
        else:
            connection.write(self._head(response, content))
            parts = cast(AsyncIterator[bytes], cast(StreamedContent, content).get_parts())
            async for part in parts:
                if part and self.takes_chunks:
                    # Not joined, so that long parts are not copied once more.
                    connection.write_all((b"%x\r\n" % len(part), part, b"\r\n"))
                elif part:
                    connection.write(part)
                if connection.is_slow:
                    await connection.drained()
                if self.is_gone:
                    return
            if self.takes_chunks:
                connection.write(b"0\r\n\r\n")
        if connection.is_slow:
            await connection.drained()
        self.is_answered = True
        if self._waiter is not None:
            self._wake()
        connection.answered(self)

    async def outlet(self) -> Outlet | None:
        """A way past the connection, for an answer whose head is out; None if there is none.

        Whoever sends through it sends chunks.
        """
        connection = self._connection
        if not self.takes_chunks:
            return None
        for _ in range(2):
            if connection.is_flushed:
                return connection.outlet()
            await asyncio.sleep(0)  # what was written in this turn of the loop is sent at its end
        return None

    def _head(self, response: Response, content: Content | None) -> bytes:
        head = self._connection.head_start(response.status)
        for name, value in response.headers.values or ():
            if b"\r" in value or b"\n" in value:
                raise ValueError(f"the header {name!r} of an answer has a line break in it")
            head += b"%b: %b\r\n" % (name.lower(), value)
        if content is None:
            if response.status != HTTPStatus.NO_CONTENT:  # which HTTP wants without a length
                head += b"content-length: 0\r\n"
        else:
            kind = content.type or b"application/octet-stream"
            if content.length >= 0 and type(content) is not StreamedContent:
                head += b"content-type: %b\r\ncontent-length: %d\r\n" % (kind, content.length)
            else:
                head += b"content-type: %b\r\n" % kind
                if self.takes_chunks:
                    head += b"transfer-encoding: chunked\r\n"
        ends = self.is_cut_short or not self.is_kept_alive
        return head + (b"connection: close\r\n\r\n" if ends else b"\r\n")

"""One connection from a client: HTTP/1.1, with limits on what it may send and how slowly."""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, cast

import httptools
import uvicorn
from blacksheep import Application
from uvicorn.server import ServerState

from penstock.http.errors import Refused
from penstock.http.exchange import Exchange, IncomingRequest
from penstock.http.outlet import Outlet

__all__ = ["Connection"]

MAX_HEAD_BYTES = 64 * 1024
LINGER_SECONDS = 1.0


class Connection(asyncio.Protocol):
    """A protocol for uvicorn's server that runs a BlackSheep application.

    - A head (request line and headers) of more than `MAX_HEAD_BYTES` is answered with 431. So is as
      much that is neither head nor body: what may follow the size of a chunk, and the trailers
      after the last one, which nobody reads.
    - `close_if_slow` ends a connection whose request takes too long to arrive, or never begins.
    - Pipelined requests wait, unread, until those before them are answered. What arrived before
      something that makes no sense is still answered.
    - A request with a transfer coding other than chunked is answered with 501.
    - Beyond the limit of connections, requests on those that came last are refused; the others are
      served as before.
    - A client that has sent all it has to say, and closed its side, still gets its answers.
    - When a request is answered before it has arrived in full (413, 401), the connection is closed
      only after a moment in which the rest is thrown away: to close it at once would destroy the
      answer before a client that is still sending has read it.
    - An offer to upgrade to another protocol is ignored, as HTTP allows. Java's client makes one
      with its first request, and the parser would take the body for the start of that protocol.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        assert isinstance(config.app, Application)
        self._app: Application = config.app
        self._server = server_state
        self._limit = config.limit_concurrency or 0
        self._keep_alive_seconds = config.timeout_keep_alive
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = self._new_parser()
        self._transport: asyncio.Transport
        self._is_beyond_limit = False
        self._is_reading = True
        self._drained: asyncio.Future[None] | None = None
        # The request that is coming in.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_in_head = False
        self._head_bytes = 0  # of the head; later, since the last part of the body
        self._data_bytes = 0  # of what the parser is given now
        self._has_body_part = False  # what the parser is given now
        self._is_head_too_long = False
        self._receiving_since: float | None = None
        # The latest request; the one that is being answered, which may be an earlier one; and those
        # that wait for their turn.
        self._exchange: Exchange | None = None
        self._running: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._idle_since: float | None = None
        self._is_lingering = False
        self._is_ending = False  # once what is owed is answered
        self._common: list[tuple[bytes, bytes]] = []
        self._head_starts: dict[int, bytes] = {}

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Data after a request that closes the connection must not cost that request its answer.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)  # type: ignore[arg-type]
        self._is_beyond_limit = self._is_too_many()
        self._receiving_since = self._loop.time()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._running is not None:
            self._running.leave()
        for exchange in self._waiting:
            exchange.leave()
        self.resume_writing()
        # Each of these refers back to the connection. Without them it is freed at once, not when
        # the garbage collector runs, which is seldom.
        self._exchange = None
        self._running = None
        self._waiting.clear()
        del self._parser

    def eof_received(self) -> bool:
        """The client sends no more, but it may still read: whether the connection stays open."""
        if not self._owes_an_answer() or self._transport.get_extra_info("ssl_object") is not None:
            return False
        self._end_when_answered()
        for exchange in (self._running, *self._waiting):
            if exchange is not None:
                exchange.hang_up()
        return True

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        self._idle_since = None
        self._data_bytes = len(data)
        self._has_body_part = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            too_long = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._refuse(too_long if self._is_head_too_long else HTTPStatus.BAD_REQUEST)
        if self._is_in_head or (self._receiving_since is not None and not self._has_body_part):
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._receiving_since = self._loop.time()
        self._is_in_head = True
        self._head_bytes = 0

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # otherwise it is a trailer
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._head_bytes + self._data_bytes > MAX_HEAD_BYTES:
            self._check_head()
        self._is_in_head = False
        parser = self._parser
        if parser.should_upgrade():
            return
        url = httptools.parse_url(self._url)
        path = url.path
        if path is None or not path.isascii():
            raise ValueError("not a path")
        method = parser.get_method().decode("ascii")
        request = IncomingRequest(method, path, url.query or b"", self._headers)
        is_old = parser.get_http_version() == "1.0"
        is_kept_alive = parser.should_keep_alive() and not is_old
        exchange = Exchange(self, request, is_kept_alive=is_kept_alive, takes_chunks=not is_old)
        coding = request.first.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            # The parser has refused all in which chunked is not the last one, and the only one.
            exchange.is_kept_alive = False
            request.refused = _coded()
        expect = request.first.get(b"expect")
        if expect is not None:
            exchange.expects_continue = expect.lower() == b"100-continue"
        ahead, self._exchange = self._exchange, exchange
        if ahead is None or ahead.is_answered:
            self._start(exchange)
        else:
            self.pause_reading()
            self._waiting.append(exchange)

    def on_body(self, part: bytes) -> None:
        self._has_body_part = True
        self._head_bytes = 0
        exchange = self._current
        if not self._parser.should_upgrade() and not exchange.is_answered:
            exchange.add(part)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():
            self._receiving_since = None
            exchange = self._current
            if not exchange.is_answered:
                exchange.end()

    def _check_head(self) -> None:
        """It may have come at once with a long body, or with the next requests: so count."""
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > MAX_HEAD_BYTES:
            self._is_head_too_long = True
            raise ValueError("the head is too long")

    @property
    def _current(self) -> Exchange:
        assert self._exchange is not None
        return self._exchange

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Parse the request again without the offer. ``rest`` is what follows its head."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        version = self._parser.get_http_version().encode()
        lines = [method + b" " + self._url + b" HTTP/" + version]
        for name, value in self._headers:
            if name == b"connection" and b"close" in value.lower():
                lines.append(b"connection: close")
            elif name not in (b"connection", b"upgrade", b"http2-settings"):
                lines.append(name + b": " + value)
        self._parser = self._new_parser()
        self.data_received(b"\r\n".join([*lines, b"", b""]) + rest)

    # Requests, one after the other.

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        if self._is_beyond_limit and self._is_too_many():
            exchange.is_kept_alive = False
            exchange.request.refused = _one_too_many()
        exchange.task = self._loop.create_task(exchange.run(self._app))
        self._server.tasks.add(exchange.task)

    def _is_too_many(self) -> bool:
        return 0 < self._limit < len(self._server.connections)

    def ended(self, exchange: Exchange) -> None:
        """The task of an exchange is over. Nothing may be left in a cycle then."""
        if exchange.task is not None:
            self._server.tasks.discard(exchange.task)
        exchange.let_go()

    def answered(self, exchange: Exchange) -> None:
        """The exchange whose turn it was has sent its answer: on to the next one."""
        if self._transport.is_closing():
            return
        if not exchange.is_kept_alive:
            self._transport.close()
        elif exchange.is_cut_short:
            self._linger()
        elif self._waiting:
            self.resume_reading()
            self._start(self._waiting.popleft())
        elif self._is_ending:
            self._transport.close()
        else:
            self.resume_reading()
            self._idle_since = self._loop.time()

    def _linger(self) -> None:
        self._is_lingering = True
        self._receiving_since = None
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.resume_reading()
        self._loop.call_later(LINGER_SECONDS, self._transport.close)

    # What exchanges and the server need.

    def head_start(self, status: int) -> bytes:
        """The status line, and the headers that every answer has."""
        headers = self._server.default_headers
        if headers is not self._common:
            # uvicorn makes a new list of them, with a new date, once a second.
            self._common = headers
            self._head_starts.clear()
        start = self._head_starts.get(status)
        if start is None:
            line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
            start = line + b"".join(b"%b: %b\r\n" % header for header in headers)
            self._head_starts[status] = start
        return start

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def write_all(self, parts: tuple[bytes, ...]) -> None:
        self._transport.writelines(parts)

    def outlet(self) -> Outlet | None:
        """A way past the transport; None where it has no socket, or encrypts."""
        transport = self._transport
        opened = transport.get_extra_info("socket")
        if opened is None or transport.get_extra_info("ssl_object") is not None:
            return None
        return None if transport.is_closing() else Outlet(opened.fileno())

    @property
    def is_flushed(self) -> bool:
        """Whether the kernel has taken everything that was written."""
        return self._transport.get_write_buffer_size() == 0

    def close(self) -> None:
        self._transport.close()

    @property
    def is_slow(self) -> bool:
        """Whether the client reads more slowly than it is answered."""
        return self._drained is not None

    async def drained(self) -> None:
        if self._drained is not None:
            await self._drained

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def shutdown(self) -> None:
        """Close, after the answer that is owed, if any."""
        if self._exchange is None or self._exchange.is_answered:
            self._transport.close()
        else:
            self._exchange.is_kept_alive = False

    def close_if_slow(self, seconds: float) -> None:
        """To be called now and then. A request has ``seconds`` to arrive."""
        now = self._loop.time()
        if self._idle_since is not None and now - self._idle_since > self._keep_alive_seconds:
            self._transport.close()
            return
        since = self._receiving_since
        if since is None or now - since <= seconds:
            return
        if self._owes_an_answer():
            # The next request is not read until then, so the delay is our own.
            self._receiving_since = now
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _owes_an_answer(self) -> bool:
        """Whether a request has arrived as a whole, and has not been answered yet."""
        if self._waiting:
            return True
        exchange = self._exchange
        if exchange is None or exchange.is_answered:
            return False
        return self._is_in_head or exchange.is_whole

    def _end_when_answered(self) -> None:
        """Close after the answers that are owed, and forget a request that is still arriving."""
        self._read_no_more()
        self._is_ending = True
        if self._waiting and not self._waiting[-1].is_whole:
            self._waiting.pop()

    def _refuse(self, status: HTTPStatus) -> None:
        """Refuse the request that is arriving; just close if another answer comes first."""
        exchange = self._exchange
        if self._owes_an_answer():
            self._end_when_answered()
        elif exchange is not None and exchange.has_begun and not exchange.is_answered:
            self._read_no_more()
            self._transport.close()
        else:
            self._refuse_now(status)

    def _refuse_now(self, status: HTTPStatus) -> None:
        self._read_no_more()
        self._transport.write(
            f"HTTP/1.1 {int(status)} {status.phrase}\r\n"
            "content-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        self._transport.close()

    def _read_no_more(self) -> None:
        """Throw away whatever still comes in."""
        self._receiving_since = None
        self._is_in_head = False
        self._is_lingering = True


def _one_too_many() -> Refused:
    return Refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "there are too many connections: close some, or try again later",
        {b"Retry-After": b"1"},
        code="too_many_connections",
    )


def _coded() -> Refused:
    return Refused(
        HTTPStatus.NOT_IMPLEMENTED,
        "the body has another Transfer-Encoding than chunked: send it as it is",
    )

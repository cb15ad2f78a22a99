"""One connection of a client: what it may send, and for how long."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Connection"]

MAX_HEAD_BYTES = 64 * 1024
LINGER_SECONDS = 1.0


class Connection(HttpToolsProtocol):
    """uvicorn's, with three more bounds, and deaf to upgrades.

    - A head (request line and headers) of more than `MAX_HEAD_BYTES` is answered with 431.
    - `close_if_slow` ends a connection whose request takes too long to arrive, or never begins.
    - Where the answer is out before the request is in (413, 401), the connection ends after a
      moment in which the rest is thrown away: closing at once would take the answer from a client
      that is still sending.
    - An offer to speak another protocol is passed over, as it may be. Java's client makes it with
      every first request, and the parser would take the body for the beginning of that protocol.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._receiving_since: float | None = None
        self._is_in_head = False
        self._head_bytes = 0
        self._is_lingering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._receiving_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._is_in_head = False
            self._is_lingering = True
            self.send_400_response("Invalid HTTP request received.")
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving_since = self.loop.time()
        self._is_in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._receiving_since = None
            super().on_message_complete()

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Read the request anew without the offer; ``rest`` is what follows its head."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._is_lingering = True
            self.send_400_response("This server is no proxy.")
            return
        version = self.parser.get_http_version().encode()
        lines = [method + b" " + self.url + b" HTTP/" + version]
        for name, value in self.headers:
            if name == b"connection" and b"close" in value.lower():
                lines.append(b"connection: close")
            elif name not in (b"connection", b"upgrade", b"http2-settings"):
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", b""]) + rest)

    def on_response_complete(self) -> None:
        # With another request in line, the one that was answered had come in whole.
        if self.pipeline or not self.cycle.more_body or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self._is_lingering = True
        self._receiving_since = None
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def close_if_slow(self, seconds: float) -> None:
        since = self._receiving_since
        if since is None or self.loop.time() - since <= seconds:
            return
        if self._owes_an_answer():
            # Its next request is not read before that, so that the delay is ours.
            self._receiving_since = self.loop.time()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _owes_an_answer(self) -> bool:
        """Whether a request before the one that is arriving has not been answered yet."""
        if self.pipeline:
            return True
        return self._is_in_head and self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: HTTPStatus) -> None:
        is_first = not self._owes_an_answer()
        has_begun = not self._is_in_head and self.cycle is not None and self.cycle.response_started
        self._receiving_since = None
        self._is_in_head = False
        if is_first and (not has_begun or self.cycle.response_complete):
            self.transport.write(
                f"HTTP/1.1 {int(status)} {status.phrase}\r\n"
                "content-length: 0\r\nconnection: close\r\n\r\n".encode()
            )
        self._is_lingering = True
        self.transport.close()

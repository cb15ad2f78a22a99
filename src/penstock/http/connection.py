"""One connection of a client: what it may send, and for how long."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Connection"]

MAX_HEAD_BYTES = 64 * 1024
LINGER_SECONDS = 1.0


class Connection(HttpToolsProtocol):
    """uvicorn's, with three more bounds.

    - A head (request line and headers) of more than `MAX_HEAD_BYTES` is answered with 431.
    - `close_if_slow` ends a connection whose request takes too long to arrive, or never begins.
    - Where the answer is out before the request is in (413, 401), the connection ends after a
      moment in which the rest is thrown away: closing at once would take the answer from a client
      that is still sending.
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
        super().data_received(data)
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
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._receiving_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.cycle.more_body or self.transport.is_closing():
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
        if since is not None and self.loop.time() - since > seconds:
            self._receiving_since = None
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _refuse(self, status: HTTPStatus) -> None:
        """Only while no answer has begun: a head that is not whole, a body that is waited for."""
        self._is_in_head = False
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(
                f"HTTP/1.1 {int(status)} {status.phrase}\r\n"
                "content-length: 0\r\nconnection: close\r\n\r\n".encode()
            )
        self._is_lingering = True
        self.transport.close()

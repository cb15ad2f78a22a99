"""One connection to an endpoint: a request is sent, and as much of the answer read as matters.

Written for callbacks alone: a general HTTP client takes several times as long for each call as
everything else that a callback does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

__all__ = ["MAX_ANSWER_BYTES", "Answer", "CallFailed", "Connection"]

# No more of a body is read than this.
MAX_ANSWER_BYTES = 4096
# Nor of the head, or of anything else that is not the body.
_MAX_HEAD_BYTES = 64 * 1024
_INFORMATIONAL = range(100, 200)


class CallFailed(Exception):
    """There was no answer. The text says why."""


class Answer(NamedTuple):
    """`excerpt` is the beginning of the body."""

    status: int
    reason: str
    retry_after: str | None
    location: str | None
    excerpt: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Connection(asyncio.Protocol):
    """Sends one request at a time.

    Once the status is known it counts, whatever happens to the rest: a body that trickles in,
    breaks off or is too long ends the connection, but does not fail the call.
    """

    def __init__(self, on_free: Callable[[Connection], None]) -> None:
        """``on_free`` is called when another request may be sent."""
        self._on_free = on_free
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self.has_answered = False  # if not at all, it may have been closed while it was idle
        self.timed_out = False
        self.is_open = False
        self.idle_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self._status = 0
        self._reason = b""
        self._retry_after: bytes | None = None
        self._location: bytes | None = None
        self._bytes = 0
        self._excerpt = b""

    def send(
        self, request: bytes, endpoint_seconds: float, left_seconds: float
    ) -> asyncio.Future[Answer]:
        """Send the request at once. The future is to be passed to `wait`.

        It fails with `CallFailed` after ``left_seconds``, which is what is left of
        ``endpoint_seconds``, the endpoint's whole time.
        """
        assert self._answer is None
        self._reset()
        self.has_answered = False
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answer = answer
        self._timer = self._loop.call_later(left_seconds, self._on_time, endpoint_seconds)
        self._transport.write(request)
        return answer

    async def wait(self, answer: asyncio.Future[Answer]) -> Answer:
        """Raises `CallFailed`. Cancelled, it takes the connection with it."""
        try:
            return await answer
        finally:
            # Somebody else may have sent the next request in the meantime.
            if self._answer is answer:
                self._timer.cancel()
                self._answer = None
                self.close()

    def close(self) -> None:
        self.is_open = False
        self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nobody asked
            return
        self.has_answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the answer is in another protocol")
        except httptools.HttpParserError as exc:
            self._fail(f"the answer is not HTTP: {exc}")
        if self._answer is not None:
            # The parser would buffer a head that never ends, and whatever follows a body.
            self._bytes += len(data)
            if self._bytes > _MAX_HEAD_BYTES:
                self._fail("the head of the answer is too long")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._fail(f"the connection was closed: {exc}" if exc else "the connection was closed")

    def _on_time(self, endpoint_seconds: float) -> None:
        self.timed_out = True
        self._fail(f"no answer within {endpoint_seconds:g} seconds")

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._answer is None:
            self.close()  # a second answer to one request, which the next one would be given

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        length = len(name)
        if length == 11 and name.lower() == b"retry-after":
            self._retry_after = value
        elif length == 8 and name.lower() == b"location":
            self._location = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status not in _INFORMATIONAL:
            self._status = status

    def on_body(self, body: bytes) -> None:
        self._excerpt += body[: MAX_ANSWER_BYTES - len(self._excerpt)]
        if len(self._excerpt) >= MAX_ANSWER_BYTES:
            self._finish(is_free=False)

    def on_message_complete(self) -> None:
        if self._status:
            self._finish(is_free=self._parser.should_keep_alive())
        else:
            self._reason = b""  # that was only informational

    # The end of a request.

    def _finish(self, *, is_free: bool) -> None:
        answer = self._answer
        if answer is None:
            return
        self._answer = None
        self._timer.cancel()
        if not answer.done():
            answer.set_result(
                Answer(
                    self._status,
                    self._reason.decode("latin-1"),
                    _text(self._retry_after),
                    _text(self._location),
                    self._excerpt,
                )
            )
        if is_free and self.is_open:
            self._on_free(self)
        else:
            self.close()

    def _fail(self, reason: str) -> None:
        if self._answer is not None and not self._status:
            answer, self._answer = self._answer, None
            self._timer.cancel()
            if not answer.done():
                answer.set_exception(CallFailed(reason))
        self._finish(is_free=False)
        self.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")

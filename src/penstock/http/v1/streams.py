"""Answers of any length: encoded piece by piece, off the event loop, as fast as they are read.

The memory that a stream takes is bounded: one part of the queue, and what was made of it. A client
that stops reading pauses the work; one that leaves ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from http import HTTPStatus
from typing import TypeVar

from blacksheep import Response, StreamedContent

from penstock.broker import Broker
from penstock.core.limits import MAX_BATCH_MESSAGES
from penstock.errors import QueueNotFound
from penstock.http.exchange import IncomingRequest
from penstock.http.outlet import Outlet
from penstock.http.v1.presence import Presence
from penstock.storage.block import Chunk

__all__ = ["Range", "Streams"]

# A part of a stream: at most a whole publish, so that its record is read once. Larger parts would
# cost less per message, and hold up others for longer.
_ROWS = MAX_BATCH_MESSAGES
_BYTES = 512 * 1024
# What is written at once.
_WRITE_BYTES = 256 * 1024

Made = TypeVar("Made")
Taken = TypeVar("Taken")
Encode = Callable[[Chunk], Iterator[bytes | memoryview]]
"""Turns a part into pieces, each when it is asked for: some parts stand for very many rows."""


class Range:
    """The messages ``start <= index < stop`` of a queue, part by part."""

    def __init__(
        self,
        broker: Broker,
        queue: str,
        start: int,
        stop: int,
        *,
        rows: int = _ROWS,
        most_bytes: int = _BYTES,
    ) -> None:
        """A part has up to ``rows`` messages, and ends with what reaches ``most_bytes``."""
        self._broker = broker
        self._rows = rows
        self._bytes = most_bytes
        self._queue = queue
        self._at = start
        self._stop = stop
        self._salt: int | None = None

    @property
    def is_done(self) -> bool:
        return self._at >= self._stop

    @property
    def at(self) -> int:
        """The index that comes next."""
        return self._at

    async def read(self) -> Chunk:
        """The next part. Raises `QueueNotFound` when the queue was replaced by another."""
        stop = min(self._stop, self._at + self._rows)
        chunk = await self._broker.scan(self._queue, self._at, stop, most_bytes=self._bytes)
        if self._salt not in (None, chunk.salt):
            raise QueueNotFound(f"queue {self._queue!r} was deleted and re-created: start again")
        self._salt = chunk.salt
        self._at = chunk.next
        return chunk


class Streams:
    """Runs what takes much processor time in a thread of its own.

    It takes turns with the event loop. A second one reads hardly faster, and the loop waits longer.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-encoder")

    async def run(self, function: Callable[[Taken], Made], argument: Taken) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, argument)

    async def answer(
        self,
        request: IncomingRequest,
        content_type: str,
        rows: Range,
        encode: Encode,
        *,
        before: bytes = b"",
        after: bytes = b"",
        following: int | None = None,
    ) -> Response:
        """``before`` and ``after`` frame what ``encode`` makes.

        ``following`` is the index at which the next call is to go on, if there is more.

        If the first part cannot be read, the answer is an error. Later it is too late for that, and
        the connection is cut.
        """
        first = await rows.read() if not rows.is_done else None

        async def parts() -> AsyncIterator[bytes]:
            if before:
                yield before
            chunk = first
            outlet = await request.exchange.outlet()
            with Presence(request) as client, outlet or nullcontext():
                while chunk is not None and client.is_there:
                    pieces = encode(chunk)
                    if outlet is not None and not await self._send(pieces, outlet):
                        return
                    while client.is_there and (slices := await self.run(_next, pieces)):
                        for each in slices:
                            yield each
                    chunk = None if rows.is_done else await rows.read()
            if after:
                yield after

        content = StreamedContent(content_type.encode(), parts)
        response = Response(HTTPStatus.OK, content=content)
        if following is not None:
            response.add_header(b"Penstock-Next", str(following).encode())
        return response

    async def _send(self, pieces: Iterator[bytes | memoryview], outlet: Outlet) -> bool:
        """Send all pieces from the thread that makes them; False if the client has left."""
        chunks = (_chunk(memoryview(piece)) for piece in pieces if len(piece))
        try:
            while not await self.run(outlet.send, chunks):
                await outlet.ready()
        except OSError:
            return False
        return True


def _chunk(piece: memoryview) -> list[memoryview]:
    """As HTTP frames it."""
    return [memoryview(b"%x\r\n" % len(piece)), piece, memoryview(b"\r\n")]


def _next(pieces: Iterator[bytes | memoryview]) -> list[bytes]:
    """The next piece, cut into what is written at a time; nothing at the end."""
    for piece in pieces:
        data = memoryview(piece)
        if data:
            return [bytes(data[at : at + _WRITE_BYTES]) for at in range(0, len(data), _WRITE_BYTES)]
    return []

"""The way out for answers of many megabytes: a thread writes them to the socket, not the loop.

Writing a megabyte to a socket takes about as much processor time as encoding it. On the event loop
everybody else would wait for that, and the operating system gives a busy loop lower priority. So
the thread that encodes the bytes sends them, too.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Self

__all__ = ["Outlet"]


class Outlet:
    """Sends on the socket of a connection whose transport has nothing left to send.

    It has its own file descriptor, which stays valid to the end of the block even if the connection
    is closed in the meantime. Then `send` raises `OSError`.
    """

    def __init__(self, number: int) -> None:
        """``number`` is the file descriptor of a stream socket."""
        self._socket = socket.socket(fileno=os.dup(number))
        self._socket.setblocking(False)
        self._left: list[memoryview] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, chunks: Iterator[list[memoryview]]) -> bool:
        """Send as much as the socket takes now; False if that is not everything. For a thread.

        What it did not take is kept, and goes first the next time.
        """
        while left := self._left or next(chunks, []):
            try:
                self._left = _behind(left, self._socket.sendmsg(left))
            except BlockingIOError:
                self._left = left
                return False
        return True

    async def ready(self) -> None:
        """Wait until the socket takes more, or the connection is lost. On the event loop."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(self._socket, _wake, ready)
        try:
            await ready
        finally:
            loop.remove_writer(self._socket)


def _behind(parts: list[memoryview], count: int) -> list[memoryview]:
    """What follows the first ``count`` bytes."""
    for at, part in enumerate(parts):
        if count < len(part):
            return [part[count:], *parts[at + 1 :]]
        count -= len(part)
    return []


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)

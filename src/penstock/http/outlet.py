"""The way out for answers of many megabytes: a thread hands them to the socket, not the event loop.

To hand a megabyte to a socket takes the processor about as long as to make it. On the loop that is
time in which everybody else waits, and a loop that is always busy is one that the system lets wait
in its turn. So whoever makes the bytes in a thread sends them from there.
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

    It has the socket under a number of its own, so that it is valid to the end of the block, even
    if the connection is closed meanwhile. Then `send` raises `OSError`.
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
        """As much as the socket takes now; False if that is not all. For a thread.

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
        """Until the socket takes more, or the connection is no more. On the event loop."""
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

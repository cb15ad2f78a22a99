"""A pool of connections to one server."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque

from penstock.client.connection import Answer, Connection

__all__ = ["CannotConnect", "Pool"]

# Servers close idle connections after a minute or so. A request sent at just that moment is lost,
# and perhaps cannot be repeated, so we close them first.
IDLE_SECONDS = 15.0
_CLOSE_SECONDS = 1.0


class CannotConnect(Exception):
    """Nothing was sent. Its cause says why; without one, the pool was closed."""


class Pool:
    """At most ``limit`` connections; further requests wait for one. Once closed, it opens none."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, limit: int) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._limit = limit
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    async def request(self, data: bytes, seconds: float) -> Answer:
        """Raises `CannotConnect` before anything is sent, then `TimeoutError` and `OSError`.

        The time is counted from when there is a connection, as a server's own delays are.
        """
        connection = self._take_idle()
        if connection is None:
            connection = await self._open(seconds)
        self._busy.add(connection)
        try:
            return await connection.request(data, seconds)
        finally:
            self._busy.discard(connection)
            if connection.is_usable:
                connection.idle_since = asyncio.get_running_loop().time()
                self._idle.append(connection)
            self._wake_one()

    async def close(self) -> None:
        self._is_closed = True
        while self._waiting:
            self._wake_one()
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([one.lost for one in connections], timeout=_CLOSE_SECONDS)

    def _take_idle(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        # The one used last is the least likely to have been closed.
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and now - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _open(self, seconds: float) -> Connection:
        while self._opening + len(self._busy) >= self._limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake_one()
                raise
            if self._is_closed:
                raise CannotConnect
            if (connection := self._take_idle()) is not None:
                return connection
        self._opening += 1
        try:
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, self._host, self._port, ssl=self._tls
                )
        except BaseException as exc:
            # Whatever it was, even a cancellation, somebody else may have this one's turn.
            self._wake_one()
            if isinstance(exc, OSError):
                raise CannotConnect from exc
            raise
        finally:
            self._opening -= 1
        if self._is_closed:
            connection.close()
            raise CannotConnect
        return connection

    def _wake_one(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

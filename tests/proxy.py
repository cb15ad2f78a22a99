"""A connection that a test can cut, freeze and heal."""

from __future__ import annotations

import asyncio
import socket
import struct
from urllib.parse import urlsplit

__all__ = ["Proxy"]


class Proxy:
    """Stands between a client and the server at a URL, which may be that of a socket file."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def url(self) -> str:
        return self._target._replace(netloc=f"127.0.0.1:{self.port}").geturl()

    def lead_to(self, url: str) -> None:
        """Where those go who connect from now on."""
        self._target = urlsplit(url)

    async def heal(self) -> None:
        """Lets everybody through; on the same port as before."""
        self._flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def freeze(self) -> None:
        """Nothing gets through any more, and nobody is told. What was sent arrives when healed."""
        self._flows.clear()

    def reset(self) -> None:
        """Ends every connection as a machine does that knows nothing of them. New ones may come."""
        for writer in list(self._writers):
            place = writer.get_extra_info("socket")
            place.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def cut(self) -> None:
        """Ends every connection, and refuses new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        self._flows.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            theirs = await self._reach()
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        await asyncio.gather(self._pass(reader, theirs[1]), self._pass(theirs[0], writer))

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.scheme == "unix":
            return await asyncio.open_unix_connection(self._target.path)
        return await asyncio.open_connection(self._target.hostname, self._target.port)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

"""A connection that a test can cut and heal."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

__all__ = ["Proxy"]


class Proxy:
    """Stands between a client and the server at a URL."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return self._target._replace(netloc=f"127.0.0.1:{self._port}").geturl()

    async def heal(self) -> None:
        """Lets everybody through; on the same port as before."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Ends every connection, and refuses new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        theirs = await asyncio.open_connection(self._target.hostname, self._target.port)
        await asyncio.gather(self._pass(reader, theirs[1]), self._pass(theirs[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

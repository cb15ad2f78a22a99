"""Endpoints that misbehave, on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["Wire", "drip_headers", "flood", "forever", "halves", "redirect", "reset", "speaking"]

Wire = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


_GONE = (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError)


@contextlib.asynccontextmanager
async def speaking(wire: Wire) -> AsyncIterator[str]:
    """A server that says whatever it likes; its URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(*_GONE):
            head = await reader.readuntil(b"\r\n\r\n")
            # All of it: what is left unread when it closes takes the answer with it.
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
            await wire(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def forever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def drip_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-More: ")
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.005)


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def halves(rng: random.Random) -> Wire:
    """Takes every second call, more or less."""

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status = b"200 OK" if rng.random() < 0.5 else b"500 Oh"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()

    return half


async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 307 There\r\nLocation: http://169.254.169.254/latest/meta-data/\r\n"
        b"Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
    await writer.drain()


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A gigabyte, as far as it is let."""
    writer.write(b"HTTP/1.1 503 Oh\r\nContent-Length: 1073741824\r\n\r\n")
    while True:
        writer.write(b"z" * 65536)
        await writer.drain()

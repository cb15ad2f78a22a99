"""Servers that answer with something else than they should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from penstock.client import AsyncClient, Retry, ServerFailed, Unreachable


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[AsyncClient]:
    """A client of a server that says the same to everything, and then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        AsyncClient(f"http://127.0.0.1:{port}", retry=Retry(attempts=1)) as client,
    ):
        yield client


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff\xfe garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"queues": [',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none_is_as_good_as_no_answer(data: bytes) -> None:
    async with answering(data) as client:
        with pytest.raises(Unreachable):
            await client.stats()


Call = Callable[[AsyncClient], Awaitable[Any]]
CALLS: list[Call] = [
    lambda client: client.ack("orders", ["2.0.1", "2.1.1"]),
    lambda client: client.nack("orders", ["2.0.1", "2.1.1"]),
    lambda client: client.extend("orders", ["2.0.1", "2.1.1"], 30),
    lambda client: client.give_back("orders", ["2.0.1", "2.1.1"]),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"ack": ["done"], "nack": [["done"]], "extend": [["done"]], "give_back": ["done"]}',
    ],
)
async def test_what_has_no_outcome_does_not_pass_for_done(body: bytes, call: Call) -> None:
    async with answering(ok(body)) as client:
        with pytest.raises(ServerFailed, match="one outcome for each"):
            await call(client)


@pytest.mark.parametrize(
    "answer",
    [
        {"messages": []},
        {"count": 1, "index": 0, "id": "01a1dee3-8e5a-7000-8000-00001648cca2"},
        {"count": 3, "index": 0, "id": "01a1dee3-8e5a-7000-8000-00001648cca2"},
    ],
)
async def test_what_is_not_answered_does_not_pass_for_published(answer: dict[str, Any]) -> None:
    body = msgspec.msgpack.encode({"durability": "fsync", **answer})
    async with answering(ok(body)) as client:
        with pytest.raises(ServerFailed, match="2 messages were sent"):
            await client.publish("orders", [b"a", b"b"])

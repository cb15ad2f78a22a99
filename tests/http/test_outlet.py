"""Long answers go from a thread to the socket, past the event loop's transport."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.http.outlet import Outlet


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def _chunks(count: int) -> Iterator[list[memoryview]]:
    for number in range(count):
        yield [memoryview(b"%08d" % number), memoryview(b"x" * 100_000), memoryview(b"")]


async def test_what_a_socket_does_not_take_goes_first_the_next_time(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    # Given more than a socket holds
    ours, theirs = ends
    theirs.setblocking(False)
    chunks = _chunks(30)
    received = bytearray()

    # When it is sent as the other side takes it
    rounds = 0
    with Outlet(ours.fileno()) as outlet:
        while not outlet.send(chunks):
            rounds += 1
            with suppress(BlockingIOError):
                while True:
                    received += theirs.recv(64_000)
            await asyncio.wait_for(outlet.ready(), 10)
        ours.close()
    theirs.setblocking(True)
    while data := theirs.recv(1_000_000):
        received += data

    # Then all of it is there, once and in order
    assert rounds > 1
    assert bytes(received) == b"".join(part for chunk in _chunks(30) for part in chunk)


async def test_who_waits_for_a_client_that_goes_away_is_told(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    chunks = _chunks(1000)
    with Outlet(ours.fileno()) as outlet:
        assert not outlet.send(chunks)
        waiting = asyncio.ensure_future(outlet.ready())
        await asyncio.sleep(0)
        theirs.close()
        await asyncio.wait_for(waiting, 10)

        with pytest.raises(ConnectionError):
            outlet.send(chunks)


def test_it_outlives_the_connection_that_it_is_of(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    with Outlet(ours.fileno()) as outlet:
        ours.close()
        assert outlet.send(iter([[memoryview(b"late")]]))
    assert theirs.recv(10) == b"late"
    assert theirs.recv(10) == b""

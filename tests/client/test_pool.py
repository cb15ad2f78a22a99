"""Connections: kept, given up, waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.client.pool import CannotConnect, Pool

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\n\r\n"


class Fake:
    """A server that gives each request the next of some answers, and counts connections."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self.connections = 0
        self.arrivals: asyncio.Queue[None] = asyncio.Queue()
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.arrivals.put_nowait(None)
                await self.is_free.wait()
                answer = self._answers.pop(0)
                writer.write(answer)
                await writer.drain()
                if not answer or b"Connection: close" in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: bytes, limit: int = 10) -> AsyncIterator[tuple[Fake, Pool]]:
    fake = Fake(list(answers))
    listener = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    pool = Pool("127.0.0.1", listener.sockets[0].getsockname()[1], tls=None, limit=limit)
    async with listener:
        try:
            yield fake, pool
        finally:
            await pool.close()
            fake.is_free.set()  # from Python 3.12 on, the listener waits for its connections to end


async def test_a_connection_is_used_again() -> None:
    async with serving(GOOD, CHUNKED, GOOD) as (fake, pool):
        bodies = [(await pool.request(REQUEST, 10)).body for _ in range(3)]

        assert bodies == [b"ok", b"ok!", b"ok"]
        assert fake.connections == 1


async def test_one_that_the_server_closes_is_not() -> None:
    async with serving(CLOSING, CLOSING, GOOD) as (fake, pool):
        bodies = [(await pool.request(REQUEST, 10)).body for _ in range(3)]

        assert bodies == [b"ok"] * 3
        assert fake.connections == 3


async def test_an_interim_answer_is_passed_over() -> None:
    async with serving(b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD) as (_, pool):
        answer = await pool.request(REQUEST, 10)

        assert (answer.status, answer.header(b"content-length"), answer.body) == (200, "2", b"ok")


async def test_whoever_comes_when_all_are_busy_waits() -> None:
    async with serving(*[GOOD] * 5, limit=2) as (fake, pool):
        # Given two requests under way, and three more
        fake.is_free.clear()
        calls = [asyncio.create_task(pool.request(REQUEST, 10)) for _ in range(5)]
        await fake.arrivals.get()
        await fake.arrivals.get()

        # When one of those who wait goes away, and the server answers
        calls[3].cancel()
        fake.is_free.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)

        # Then the others are answered over the two connections
        assert [getattr(answer, "body", None) for answer in answers] == [*[b"ok"] * 3, None, b"ok"]
        assert fake.connections == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ConnectionError),
        (b"SSH-2.0-OpenSSH_9.6\r\n", OSError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nok", ConnectionError),
    ],
)
async def test_half_an_answer_is_none(answer: bytes, error: type[Exception]) -> None:
    async with serving(answer, GOOD) as (fake, pool):
        with pytest.raises(error):
            await pool.request(REQUEST, 10)

        # The connection is given up with it
        assert (await pool.request(REQUEST, 10)).body == b"ok"
        assert fake.connections == 2


async def test_a_call_that_is_given_up_takes_its_connection_with_it() -> None:
    async with serving(GOOD, GOOD) as (fake, pool):
        # Given a request whose answer nobody waits for any more
        fake.is_free.clear()
        call = asyncio.create_task(pool.request(REQUEST, 10))
        await fake.arrivals.get()
        call.cancel()
        await asyncio.wait([call])
        fake.is_free.set()

        # Then the next one cannot get it
        assert (await pool.request(REQUEST, 10)).body == b"ok"
        assert fake.connections == 2


async def test_nothing_was_sent_when_there_is_no_connection() -> None:
    pool = Pool("127.0.0.1", 9, tls=None, limit=1)

    for _ in range(2):
        with pytest.raises(CannotConnect) as caught:
            await pool.request(REQUEST, 10)
        assert isinstance(caught.value.__cause__, OSError)


async def test_the_turn_of_a_call_that_was_cancelled_while_it_connected_goes_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(GOOD, limit=1) as (_, pool):
        # Given one that connects, and one that waits for its turn
        loop = asyncio.get_running_loop()
        connect = loop.create_connection
        connecting = asyncio.Event()

        async def never(*args: object, **options: object) -> None:
            connecting.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(loop, "create_connection", never)
        first = asyncio.create_task(pool.request(REQUEST, 10))
        await connecting.wait()
        second = asyncio.create_task(pool.request(REQUEST, 10))
        await asyncio.sleep(0)
        assert len(pool._waiting) == 1

        # When the first gives up
        monkeypatch.setattr(loop, "create_connection", connect)
        first.cancel()

        # Then the second goes on
        assert (await asyncio.wait_for(second, 10)).body == b"ok"


async def test_a_closed_pool_opens_no_connection_for_those_that_waited() -> None:
    async with serving(GOOD, GOOD, GOOD, limit=1) as (fake, pool):
        # Given a request under way, and two that wait for its connection
        fake.is_free.clear()
        calls = [asyncio.create_task(pool.request(REQUEST, 10)) for _ in range(3)]
        await fake.arrivals.get()

        # When the pool is closed
        await pool.close()

        # Then all of them end, and nothing is sent any more
        under_way, *waiting = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(under_way, ConnectionError)
        assert [type(one) for one in waiting] == [CannotConnect] * 2
        assert fake.connections == 1


async def test_a_connection_that_is_made_after_the_close_is_not_used() -> None:
    async with serving(GOOD) as (fake, pool):
        call = asyncio.create_task(pool.request(REQUEST, 10))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(CannotConnect):
            await call
        assert fake.arrivals.empty()

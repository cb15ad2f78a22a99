from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from penstock.client import (
    AsyncClient,
    ClientClosed,
    Forbidden,
    Retry,
    ServerFailed,
    TooManyConnections,
    Unauthorized,
    Unreachable,
)
from penstock.core.retry import Backoff
from tests.client.server import Server

QUICK = Retry(attempts=3, backoff=Backoff(base_seconds=0.01))
PATIENT = Retry(attempts=100, backoff=Backoff(base_seconds=0.05, max_seconds=0.1))


async def test_a_wrong_password_is_said_once_and_clearly(server: Server) -> None:
    async with AsyncClient(server.url, username="admin", password="wrong") as client:
        with pytest.raises(Unauthorized):
            await client.stats()
    async with AsyncClient(server.url) as client:
        with pytest.raises(Unauthorized):
            await client.stats()


async def test_a_user_may_work_but_not_administer(server: Server, queue: str) -> None:
    async with server.client(admin=False) as client:
        await client.publish(queue, [b"a"])
        await client.ack(queue, await client.receive(queue))
        with pytest.raises(Forbidden, match="ADMIN"):
            await client.purge_queue(queue)


async def test_a_server_that_is_not_there_is_unreachable_after_all_attempts() -> None:
    async with AsyncClient("http://127.0.0.1:9", retry=QUICK) as client:
        with pytest.raises(Unreachable, match="no connection to"):
            await client.publish("queue", [b"a"])


async def test_a_call_that_one_connection_too_many_refused_is_sent_again(tmp_path: Path) -> None:
    # Given a server that has as many connections as it may have
    with Server("memory:", tmp_path / "log", PENSTOCK_MAX_CONNECTIONS="1") as full:
        with socket.create_connection(("127.0.0.1", full.port)):
            async with full.client(retry=QUICK) as client:
                with pytest.raises(TooManyConnections, match="try again later"):
                    await client.create_queue("jobs")
        # When the other one goes away after a call that must not be made twice was refused
        async with full.client(retry=PATIENT) as client:
            with socket.create_connection(("127.0.0.1", full.port)) as other:
                pauses: list[float] = []

                async def close_other(seconds: float) -> None:
                    pauses.append(seconds)
                    other.close()
                    await asyncio.sleep(seconds)

                client._transport._sleep = close_other
                created = await client.create_queue("jobs")
    # Then it was made once more, because the server had done nothing
    assert created.name == "jobs"
    assert pauses


async def test_https_where_there_is_none_says_what_to_use(server: Server) -> None:
    async with AsyncClient(server.url.replace("http:", "https:"), retry=QUICK) as client:
        with pytest.raises(Unreachable, match="use http://"):
            await client.stats()


async def test_an_answer_that_takes_too_long_is_unreachable(server: Server, queue: str) -> None:
    async with server.client(timeout_seconds=0.05, retry=QUICK) as client:
        client_wait = client._transport.request(
            "POST",
            f"/v1/queues/{queue}/subscriptions/default/receive",
            body=b'{"wait_seconds": 2}',
        )
        with pytest.raises(Unreachable, match=r"within 0\.05 seconds"):
            await client_wait


async def test_something_else_that_answers_is_not_taken_for_a_server() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, AsyncClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ServerFailed, match="makes no sense"):
            await client.stats()


async def test_a_closed_client_says_so(server: Server, queue: str) -> None:
    client = server.client()
    await client.publish(queue, [b"a"])
    await client.close()
    await client.close()

    with pytest.raises(ClientClosed):
        await client.publish(queue, [b"a"])
    with pytest.raises(ClientClosed):
        await client.stats()
    with pytest.raises(ClientClosed):
        await client.ack(queue, ["1.2.3"])


async def test_a_long_poll_ends_with_its_client(server: Server, queue: str) -> None:
    # Given a long poll, and another that waits for its connection
    client = server.client(connections=1)
    await client.stats()
    polls = [asyncio.create_task(client.receive(queue, wait_seconds=20)) for _ in range(2)]
    await asyncio.sleep(0)

    # When the client is closed
    await client.close()

    # Then both say so, and neither takes a message later
    ends = await asyncio.gather(*polls, return_exceptions=True)
    assert [type(end) for end in ends] == [ClientClosed] * 2


async def test_close_waits_for_the_calls_that_were_made(server: Server, queue: str) -> None:
    client = server.client()
    call = asyncio.create_task(client.publish(queue, [b"a"]))
    await asyncio.sleep(0)

    await client.close()

    assert (await call)[0].index == 0


async def test_publishes_outlive_a_server_that_is_killed_and_nothing_is_stored_twice(
    mortal: Server,
) -> None:
    patient = Retry(attempts=100, backoff=Backoff(base_seconds=0.1))
    async with mortal.client(retry=patient) as client:
        # Given a load of publishes, one message a call
        await client.create_queue("payments")
        accepted: list[bytes] = []
        is_busy = asyncio.Event()

        async def publish_many(producer: int) -> None:
            for number in range(50):
                body = f"{producer}/{number}".encode()
                await client.publish("payments", [body])
                accepted.append(body)
                if len(accepted) == 200:
                    is_busy.set()

        load = [asyncio.create_task(publish_many(producer)) for producer in range(16)]

        # When
        await is_busy.wait()
        await asyncio.to_thread(mortal.end, signal.SIGKILL)
        await asyncio.to_thread(mortal.start)
        await asyncio.gather(*load)

        # Then
        stored = [message.body for message in await client.read("payments", limit=1000)]
        assert len(accepted) == 16 * 50
        assert sorted(stored) == sorted(accepted)

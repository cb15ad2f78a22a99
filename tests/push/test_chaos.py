"""Endpoints that misbehave: each is given up in time, read no further than needed, and retried."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from aiohttp import web

from penstock import Backoff, Callback
from penstock.broker import Broker
from penstock.push import LOOPBACK, Dispatcher, Guard
from penstock.push.transport import Answer, CallFailed, Endpoint, Transport
from penstock.storage.registry import open_store
from tests.push.conftest import QUEUE, until_stats
from tests.push.receiver import Call, Receiver
from tests.push.wires import (
    Wire,
    drip_headers,
    flood,
    forever,
    halves,
    redirect,
    reset,
    speaking,
)


async def call(wire: Wire, *, timeout_seconds: float = 20) -> Answer:
    transport = Transport(Guard(LOOPBACK))
    try:
        async with speaking(wire) as url:
            endpoint = Endpoint(Callback(url=url, timeout_seconds=timeout_seconds))
            return await transport.post(endpoint, b"x" * 100, {})
    finally:
        await transport.close()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xff not HTTP \r\n\r\n")
    await asyncio.sleep(3600)


async def endless_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: %s\r\n" % (b"x" * 1000) * 64)
        await writer.drain()


async def endless_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-More: ")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_informational(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 10)
        await writer.drain()
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("wire", [forever, drip_headers, endless_informational])
async def test_what_never_answers_is_given_up_in_time(wire: Wire) -> None:
    with pytest.raises(CallFailed, match="no answer within"):
        await call(wire, timeout_seconds=0.1)


@pytest.mark.parametrize("wire", [reset, garbage, endless_headers, endless_header])
async def test_what_is_no_answer_fails_with_a_reason(wire: Wire) -> None:
    with pytest.raises(CallFailed) as raised:
        await call(wire)
    assert str(raised.value)


async def test_a_gigabyte_is_not_read() -> None:
    # Given an endpoint that announces a gigabyte, and sends what it is let
    sent = 0

    async def gigabyte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 500 Oh\r\nContent-Length: 1073741824\r\n\r\n")
        while sent < 2**30:
            writer.write(b"z" * 65536)
            sent += 65536
            await writer.drain()

    answer = await call(gigabyte)
    # Then 4 KiB are kept, and the rest never left: only what fits into buffers on the way
    assert (answer.status, len(answer.excerpt)) == (500, 4096)
    assert sent < 2**26


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"0\r\nX-More: ", id="a trailer"),
        pytest.param(b"0\r\n", id="trailers"),
        pytest.param(b"5;more=", id="an extension of a chunk"),
    ],
)
async def test_what_follows_a_body_is_not_read_either(beginning: bytes) -> None:
    sent = 0
    piece = b"X-More: xxxxxxx\r\n" * 4096 if beginning == b"0\r\n" else b"x" * 65536

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + beginning)
        while sent < 2**28:
            writer.write(piece)
            sent += len(piece)
            await writer.drain()

    assert (await call(flood, timeout_seconds=5)).status == 200
    assert sent < 2**26


async def test_an_answer_that_changes_the_protocol_is_a_failure_with_a_reason() -> None:
    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
        await asyncio.sleep(3600)

    with pytest.raises(CallFailed, match="protocol"):
        await call(upgrade)


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async def bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oh\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbomb")
        await asyncio.sleep(3600)

    assert (await call(bomb)).excerpt == b"bomb"


@pytest.mark.parametrize("status", [200, 500])
async def test_a_body_that_drips_does_not_take_the_status_away(status: int) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d Word\r\nContent-Length: 100000\r\n\r\n" % status)
        while True:
            writer.write(b"d")
            await asyncio.sleep(0.005)

    answer = await call(drip, timeout_seconds=0.2)
    assert answer.status == status
    assert set(answer.excerpt) <= set(b"d")


async def test_a_body_that_breaks_off_does_not_take_the_status_away() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
        await writer.drain()

    assert (await call(break_off)).status == 200


# All of them at once, beside one that is well.


async def test_among_all_of_them_nothing_is_lost(tmp_path: Path, receiver: Receiver) -> None:
    """The total queue: what was accepted is acked or a dead letter in the end, for each of them."""
    rng = random.Random(4)

    wires: dict[str, Wire] = {
        "hang": forever,
        "drip": drip_headers,
        "reset": reset,
        "half": halves(rng),
        "redirect": redirect,
        "flood": flood,
    }
    count = 30
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(await open_store(str(tmp_path / "data"))))
        dispatcher = Dispatcher(broker, allowed=LOOPBACK)
        await dispatcher.start()
        stack.push_async_callback(dispatcher.close, 0)
        await broker.create_queue("jobs")
        await broker.delete_subscription("jobs", "default")
        for name, wire in wires.items():
            url = await stack.enter_async_context(speaking(wire))
            await broker.create_subscription(
                "jobs",
                name,
                callback=Callback(
                    url=url,
                    timeout_seconds=0.05 if wire in (forever, drip_headers) else 20,
                    concurrency=30,
                ),
                backoff=Backoff(base_seconds=0.001),
                max_deliveries=10 if name == "half" else 1,
            )
        await broker.create_subscription("jobs", "well", callback=Callback(url=receiver.url()))
        published = [m.id for m in await broker.publish("jobs", [b"%d" % n for n in range(count)])]

        # The one that is well has everything, whatever the others do
        calls = await receiver.wait_for(count)
        assert sorted(c.headers["webhook-id"] for c in calls) == sorted(published)
        for name in wires:
            stats = await until_stats(broker, name, lambda s: s.acked + s.dead_lettered == count)
            assert stats.acked == 0 or name == "half"
        letters = await broker.dead_letters("jobs", limit=1000)
        reasons = {
            m.dead_letter.subscription: m.dead_letter.reason for m in letters if m.dead_letter
        }
        assert reasons["hang"].endswith("within 0.05 seconds")
        assert "redirects are not followed" in reasons["redirect"]
        assert reasons["flood"].startswith("503 Oh: zzz")


async def test_an_endpoint_that_hangs_holds_up_no_other(broker: Broker, receiver: Receiver) -> None:
    # Given one that never answers, with everything in its hands that it can get
    dispatcher = Dispatcher(broker, allowed=LOOPBACK, workers=32)
    await dispatcher.start()

    async def hang(call: Call) -> web.StreamResponse:
        if call.path == "/dead":
            await asyncio.sleep(3600)
        return web.Response()

    receiver.behave = hang
    await broker.create_subscription(
        QUEUE, "dead", callback=Callback(url=receiver.url("dead"), concurrency=100)
    )
    await broker.publish(QUEUE, [b"x"] * 200)
    await receiver.wait_for(16)
    # When another one comes along
    await broker.create_subscription(
        QUEUE, "alive", start="earliest", callback=Callback(url=receiver.url("alive"))
    )
    # Then it gets all of its messages
    await until_stats(broker, "alive", lambda s: s.acked == 200)
    assert sum(call.path == "/dead" for call in receiver.calls) == 16
    await dispatcher.close(grace_seconds=0)


async def test_a_lease_is_extended_for_as_long_as_a_call_takes(
    broker: Broker, receiver: Receiver
) -> None:
    # Given a call that takes more than two leases
    dispatcher = Dispatcher(broker, allowed=LOOPBACK, lease_seconds=1.5)
    await dispatcher.start()

    async def take_time(call: Call) -> web.StreamResponse:
        await asyncio.sleep(3.5)
        return web.Response()

    receiver.behave = take_time
    await broker.create_subscription(QUEUE, "slow", callback=Callback(url=receiver.url()))
    await broker.publish(QUEUE, [b"x"])
    # Then it is called once
    stats = await until_stats(broker, "slow", lambda s: s.acked == 1)
    assert (stats.delivered, stats.leases_expired, len(receiver.calls)) == (1, 0, 1)
    await dispatcher.close()

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock import Backoff
from penstock.client import App, AsyncClient, Delivery, WorkerSettings
from penstock.client.options import WorkerOptions
from penstock.client.worker import Worker
from penstock.errors import InvalidArgument, QueueNotFound
from tests.client.server import Server


@pytest.fixture
def app(server: Server) -> App:
    return App(server.url, username="admin", password="adminpassword")


@asynccontextmanager
async def running(app: App) -> AsyncIterator[None]:
    task = asyncio.create_task(app.serve())
    try:
        yield
    finally:
        app.stop()
        await asyncio.wait_for(task, 10)


def after(count: int) -> tuple[asyncio.Event, Callable[[], None]]:
    """An event that is set when it was counted that often."""
    done, left = asyncio.Event(), [count]

    def tell() -> None:
        left[0] -= 1
        if left[0] <= 0:
            done.set()

    return done, tell


async def test_the_next_messages_do_not_wait_for_the_answers_to_acks(
    client: AsyncClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given acks that are not answered for now
    await client.publish(queue, [str(number).encode() for number in range(20)])
    answered = asyncio.Event()
    transport = client._transport
    request = transport.request

    async def held(method: str, path: str, **options: Any) -> bytes:
        if path.endswith("/settle"):
            await answered.wait()
        return await request(method, path, **options)

    monkeypatch.setattr(transport, "request", held)
    handled: list[bytes] = []
    twice_the_limit, tell = after(10)
    rest, tell_rest = after(20)

    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.body)
        tell()
        tell_rest()

    # When a worker may have five messages at once
    settings = WorkerSettings(queue=queue, concurrency=1, prefetch=4, wait_seconds=0.1)
    worker = Worker(client, handle, settings, random.Random(0))
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(twice_the_limit.wait(), 10)

    # Then it handles five more while it waits, but no further ones
    [stats] = await client.subscriptions(queue)
    assert (len(handled), stats.in_flight) == (10, 10)
    answered.set()
    await asyncio.wait_for(rest.wait(), 10)
    worker.end()
    await running


async def test_every_message_is_handled_once_and_acked(
    app: App, client: AsyncClient, queue: str
) -> None:
    seen: Counter[bytes] = Counter()
    done, tell = after(500)

    @app.worker(queue, concurrency=8)
    async def handle(delivery: Delivery) -> None:
        seen[delivery.body] += 1
        tell()

    await client.publish(queue, [str(number).encode() for number in range(500)])
    async with running(app):
        await asyncio.wait_for(done.wait(), 10)

    assert seen == Counter(str(number).encode() for number in range(500))
    assert (await client.subscription_stats(queue)).acked == 500


async def test_no_more_handlers_run_at_once_than_allowed(
    app: App, client: AsyncClient, queue: str
) -> None:
    busy = most = 0
    done, tell = after(30)

    @app.worker(queue, concurrency=3)
    async def handle(delivery: Delivery) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.01)
        busy -= 1
        tell()

    await client.publish(queue, [b"x"] * 30)
    async with running(app):
        await asyncio.wait_for(done.wait(), 10)

    assert most == 3


async def test_a_failed_message_is_nacked_with_its_reason_and_comes_again(
    app: App, client: AsyncClient, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.alter_subscription(queue, "default", max_deliveries=2)
    attempts: list[int] = []
    done, tell = after(3)

    @app.worker(queue, backoff=Backoff(base_seconds=0.05))
    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.deliveries)
        tell()
        if delivery.body == b"bad":
            raise ValueError("no such customer")

    await client.publish(queue, [b"bad", b"good"])
    with caplog.at_level(logging.WARNING):
        async with running(app):
            await asyncio.wait_for(done.wait(), 10)

    (letter,) = await client.dead_letters(queue)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason == "ValueError: no such customer"
    assert sorted(attempts) == [1, 1, 2]
    assert "the handler failed" in caplog.text


async def test_a_lease_is_extended_for_as_long_as_the_handler_runs(
    app: App, client: AsyncClient, queue: str
) -> None:
    done, tell = after(1)

    @app.worker(queue, lease_seconds=1.5, concurrency=2)
    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(3.5)  # more than two leases
        tell()

    await client.publish(queue, [b"slow"])
    async with running(app):
        await asyncio.wait_for(done.wait(), 10)

    stats = await client.subscription_stats(queue)
    assert (stats.acked, stats.delivered, stats.leases_expired) == (1, 1, 0)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def cancelled_within() -> None:
    raise asyncio.CancelledError


def stop_iteration() -> None:
    next(iter(()))


def unspeakable() -> None:
    raise Unspeakable


def no_text() -> None:
    raise ValueError("a file called \udcff")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (cancelled_within, "CancelledError: "),
        (stop_iteration, "RuntimeError: "),
        (unspeakable, "Unspeakable"),
        (no_text, "ValueError: a file called \\udcff"),
    ],
)
@pytest.mark.parametrize("is_plain", [True, False])
async def test_however_a_handler_fails_its_message_is_nacked_and_the_worker_goes_on(
    app: App,
    client: AsyncClient,
    queue: str,
    failure: Callable[[], None],
    reason: str,
    is_plain: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)  # not every report of tests can hold every text
    await client.alter_subscription(queue, "default", max_deliveries=1)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def plain(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            failure()
        loop.call_soon_threadsafe(done.set)

    async def coroutine(delivery: Delivery) -> None:
        plain(delivery)

    app.worker(queue)(plain if is_plain else coroutine)
    await client.publish(queue, [b"bad", b"good"])
    async with running(app):
        await asyncio.wait_for(done.wait(), 10)

    (letter,) = await client.dead_letters(queue)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason.startswith(reason)
    assert (await client.subscription_stats(queue)).acked == 1


async def test_a_handler_that_ends_the_program_leaves_its_message_to_others(
    server: Server, client: AsyncClient, queue: str
) -> None:
    await client.publish(queue, [b"x"])
    program = PROGRAM.replace("await asyncio.sleep(0.1)", "sys.exit(7)")
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", program, server.url, queue], stdout=subprocess.PIPE
    )
    said, _ = await asyncio.wait_for(process.communicate(), 20)

    assert (said, process.returncode) == (b"began\n", 7)
    stats = await client.subscription_stats(queue)
    assert (stats.acked, stats.nacked, stats.in_flight) == (0, 1, 0)


async def test_as_many_plain_functions_run_at_once_as_were_asked_for(
    app: App, client: AsyncClient, queue: str
) -> None:
    # Given more of them than the loop itself has threads for
    together = threading.Barrier(40)
    await client.publish(queue, [b"x"] * 40)

    @app.worker(queue, concurrency=40)
    def handle(delivery: Delivery) -> None:
        together.wait(10)

    # When all wait for each other, then none waits in vain
    async with running(app):
        while (await client.subscription_stats(queue)).acked < 40:
            assert not together.broken
            await asyncio.sleep(0.01)


async def test_a_plain_function_is_called_in_a_thread(
    app: App, client: AsyncClient, queue: str
) -> None:
    names: list[str] = []
    done = threading.Event()

    @app.worker(queue)
    def handle(delivery: Delivery) -> None:
        names.append(threading.current_thread().name)
        done.set()

    await client.publish(queue, [b"x"])
    async with running(app):
        assert await asyncio.to_thread(done.wait, 10)

    assert names != [threading.current_thread().name]
    assert (await client.subscription_stats(queue)).acked == 1


async def test_a_stop_finishes_what_runs_and_gives_back_what_waits(
    app: App, client: AsyncClient, queue: str
) -> None:
    # Given
    started, tell = after(1)
    finish = asyncio.Event()
    handled: list[int] = []

    @app.worker(queue, concurrency=1)
    async def handle(delivery: Delivery) -> None:
        tell()
        await finish.wait()
        handled.append(delivery.index)

    await client.publish(queue, [b"x"] * 5)
    serving = asyncio.create_task(app.serve())
    await asyncio.wait_for(started.wait(), 10)

    # When
    app.stop()
    left = await client.receive(queue, limit=10, wait_seconds=5)
    finish.set()
    await asyncio.wait_for(serving, 10)

    # Then
    assert handled == [0]
    assert [one.index for one in left] == [1, 2, 3, 4]
    assert (await client.subscription_stats(queue)).acked == 1


async def test_a_second_stop_cancels_what_runs_and_gives_it_back(
    app: App, client: AsyncClient, queue: str
) -> None:
    started, tell = after(1)

    @app.worker(queue)
    async def handle(delivery: Delivery) -> None:
        tell()
        await asyncio.sleep(60)

    await client.publish(queue, [b"x"])
    serving = asyncio.create_task(app.serve())
    await asyncio.wait_for(started.wait(), 10)

    app.stop()
    app.stop()
    await asyncio.wait_for(serving, 10)

    (again,) = await client.receive(queue, wait_seconds=1)
    assert again.deliveries == 2


async def test_handlers_that_outlast_the_patience_are_cancelled(
    app: App, client: AsyncClient, queue: str
) -> None:
    started, tell = after(1)

    @app.worker(queue, stop_seconds=0.2)
    async def handle(delivery: Delivery) -> None:
        tell()
        await asyncio.sleep(60)

    await client.publish(queue, [b"x"])
    serving = asyncio.create_task(app.serve())
    await asyncio.wait_for(started.wait(), 10)

    app.stop()
    await asyncio.wait_for(serving, 5)

    assert len(await client.receive(queue, wait_seconds=1)) == 1


async def test_when_one_worker_cannot_go_on_all_stop_and_the_error_is_raised(
    app: App, queue: str
) -> None:
    @app.worker(queue)
    async def fine(delivery: Delivery) -> None: ...

    @app.worker("nowhere")
    async def lost(delivery: Delivery) -> None: ...

    with pytest.raises(QueueNotFound):
        await asyncio.wait_for(app.serve(), 10)


def test_what_makes_no_sense_is_refused_when_it_is_declared() -> None:
    app = App()
    with pytest.raises(InvalidArgument, match="concurrency is 0"):
        app.worker("orders", concurrency=0)
    with pytest.raises(InvalidArgument, match="unknown setting speed"):
        app.worker("orders", speed=9)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="there is no worker"):
        app.run()


def test_the_options_of_a_worker_are_its_settings() -> None:
    assert {"queue", *WorkerOptions.__annotations__} == set(WorkerSettings.__struct_fields__)


PROGRAM = """
import asyncio, sys
from penstock.client import App

app = App(sys.argv[1], username="user", password="password")

@app.worker(sys.argv[2])
async def handle(delivery):
    print("began", flush=True)
    await asyncio.sleep(0.1)
    print("done", flush=True)

app.run()
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_program_after_what_it_is_doing(
    server: Server, client: AsyncClient, queue: str, number: signal.Signals
) -> None:
    await client.publish(queue, [b"x"])
    command = [sys.executable, "-c", PROGRAM, server.url, queue]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, env={**os.environ}
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 10) == b"began\n"
        process.send_signal(number)
        rest = await asyncio.wait_for(process.stdout.read(), 10)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert rest == b"done\nstopped\n"
    assert code == 0
    assert (await client.subscription_stats(queue)).acked == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "stubborn",
    [
        """
async def handle(delivery):
    print("began", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", flush=True)
""",
        """
def handle(delivery):
    print("began", flush=True)
    threading.Event().wait()
""",
    ],
)
async def test_the_third_signal_kills_what_would_not_end(
    server: Server, client: AsyncClient, queue: str, stubborn: str, number: signal.Signals
) -> None:
    await client.publish(queue, [b"x"])
    program = f"""
import asyncio, sys, threading
from penstock.client import App
app = App(sys.argv[1], username="user", password="password")
{stubborn}
app.worker(sys.argv[2])(handle)
app.run()
"""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", program, server.url, queue], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 10) == b"began\n"
        sent = 0
        while process.returncode is None:
            assert sent < 200
            process.send_signal(number)
            sent += 1
            with contextlib.suppress(TimeoutError):
                # Two at the same moment would be one.
                await asyncio.wait_for(process.wait(), 0.1)

        assert process.returncode == -number
        assert sent >= 3
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

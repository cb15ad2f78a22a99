"""Calls with what they are not made for, and clients where they do not belong."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import NewMessage
from penstock.client import AsyncClient, Client
from penstock.errors import InvalidArgument
from tests.client.server import Server

ADMIN: Any = {"username": "admin", "password": "adminpassword"}


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, **ADMIN) as client:
        client.create_queue("misused")
        yield client


@pytest.mark.parametrize(
    "option",
    [
        {"connections": 0},
        {"connections": None},
        {"requests": 0},
        {"requests": "4"},
        {"timeout_seconds": 0},
        {"timeout_seconds": math.nan},
        {"timeout_seconds": None},
        {"linger_seconds": -1},
        {"linger_seconds": math.inf},
        {"username": "a:b", "password": "b"},
        {"username": "\udcff", "password": "b"},
        {"username": "a"},
        {"password": "b"},
    ],
)
def test_an_option_with_which_every_call_would_hang_or_fail_is_refused(option: Any) -> None:
    with pytest.raises(InvalidArgument):
        AsyncClient(**option)


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://h:99999", "http://a..b", "http://xn--a.com", 5, None, "localhost:80"],
)
def test_a_url_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(InvalidArgument, match="use one like"):
        AsyncClient(url)


@pytest.mark.parametrize(
    ("method", "arguments", "options"),
    [
        ("receive", (), {"wait_seconds": math.nan}),
        ("receive", (), {"wait_seconds": "1"}),
        ("receive", (), {"lease_seconds": math.nan}),
        ("nack", (["2.0.1"],), {"delay_seconds": math.nan}),
        ("nack", (["2.0.1"],), {"reason": 5}),
        ("extend", (["2.0.1"], math.nan), {}),
        ("ack", (5,), {}),
        ("ack", (None,), {}),
        ("ack", ("",), {}),
        ("ack", (["\udcff"],), {}),
        ("publish", (None,), {}),
        ("publish", (bytearray(b"x"),), {}),
        ("publish", (NewMessage(body=b"x"),), {}),
        ("publish", ([b"x"],), {"idempotency_key": 5}),
        ("get", (None,), {}),
        ("get", ("\udcff",), {}),
        ("get", ("",), {}),
        ("replay", ("01a1dee3-8e5a-7000-8000-00001648cca2",), {}),
        ("release", ("default", 5), {}),
        ("ack_up_to", (None,), {}),
        ("alter_queue", (), {"retention_seconds": math.nan}),
        ("alter_queue", (), {"message_ttl_seconds": math.inf}),
        ("ensure_subscription", ("s",), {"lease_seconds": math.nan}),
        ("ensure_subscription", ("s",), {"backoff": {"base_seconds": math.nan}}),
    ],
)
def test_what_a_call_cannot_take_is_refused_and_not_taken_for_something_else(
    client: Client, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        getattr(client, method)("misused", *arguments, **options)


@pytest.mark.parametrize(
    ("method", "arguments", "options"),
    [
        ("queues", (), {"after": "\udcff"}),
        ("alter_user", ("",), {"role": "USER"}),
        ("remove_user", ("",), {}),
    ],
)
def test_what_a_path_cannot_have_is_refused_by_name(
    client: Client, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match=r"not text|is empty"):
        getattr(client, method)(*arguments, **options)


def test_messages_and_targets_may_come_from_a_generator(client: Client) -> None:
    published = client.publish("misused", (b"%d" % n for n in range(3)))  # type: ignore[arg-type]
    deliveries = client.receive("misused", limit=3)
    outcomes = client.ack("misused", (one for one in deliveries))  # type: ignore[arg-type]

    assert len(published) == len(outcomes) == 3


def run(code: str, *arguments: str) -> tuple[int, str, str]:
    """In a process of its own: its exit code, and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def test_in_a_second_event_loop_a_client_says_that_its_own_has_ended(server: Server) -> None:
    code = """
import asyncio, sys
from penstock.client import AsyncClient, ClientClosed

async def main():
    await client.stats()
    await client.publish("misused", [b"x"])

client = AsyncClient(sys.argv[1], username="admin", password="adminpassword")
asyncio.run(main())
for call in (client.stats(), client.publish("misused", [b"x"]), client.receive("misused")):
    try:
        asyncio.run(call)
    except ClientClosed as error:
        print(error)
asyncio.run(client.close())
"""
    with Client(server.url, **ADMIN) as other:
        other.create_queue("misused-in-loops")

    sentence = "the event loop of the client has ended: make a new client\n"
    assert run(code.replace("misused", "misused-in-loops"), server.url) == (0, 3 * sentence, "")


def test_a_child_of_a_fork_is_told_to_make_its_own(server: Server) -> None:
    code = """
import os, sys, warnings
from penstock import Client
from penstock.client import ClientClosed

warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of every fork
options = {"username": "admin", "password": "adminpassword"}
with Client(sys.argv[1], **options) as client:
    client.stats()
    if (child := os.fork()) == 0:
        try:
            client.stats()
        except ClientClosed as error:
            print(error, flush=True)
        client.close()
        with Client(sys.argv[1], **options) as own:
            own.stats()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.stats()
"""
    sentence = "the client belongs to the process that forked: make a new one\n"
    assert run(code, server.url) == (0, sentence, "")


def test_in_a_child_of_a_fork_an_async_client_is_told_so_and_its_parent_notices_nothing(
    server: Server,
) -> None:
    code = """
import asyncio, os, sys, warnings
from penstock.client import AsyncClient, ClientClosed

warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of every fork
options = {"username": "admin", "password": "adminpassword"}

async def be_a_child(client):
    for call in (client.stats(), client.publish("forked", [b"c"]), client.ack("forked", ["1.0.1"])):
        try:
            await call
        except ClientClosed as error:
            print(error, flush=True)
    await client.close()
    async with AsyncClient(sys.argv[1], **options) as own:
        await own.stats()

async def main():
    async with AsyncClient(sys.argv[1], **options) as client:
        await client.create_queue("forked")
        await client.publish("forked", [b"a"])
        await client.ack("forked", await client.receive("forked"))
        if (child := os.fork()) == 0:
            asyncio.run(be_a_child(client))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        [published] = await client.publish("forked", [b"b"])
        assert published.index == 1

asyncio.run(main())
"""
    sentence = "the client belongs to another event loop or process: make a new one\n"
    assert run(code, server.url) == (0, 3 * sentence, "")


def test_an_interrupt_at_any_moment_is_an_interrupt_and_leaves_nothing_behind(
    server: Server, client: Client
) -> None:
    # Given a program that is interrupted at moments which move through its calls
    code = """
import gc, logging, signal, sys, warnings
from penstock import Client

warnings.simplefilter("error")
logging.basicConfig()
signal.signal(signal.SIGALRM, signal.default_int_handler)
interrupted = 0
with Client(sys.argv[1], username="admin", password="adminpassword") as client:
    client.stats()
    for moment in range(1, 500):
        try:
            signal.setitimer(signal.ITIMER_REAL, moment * 2e-6)
            client.publish("misused", [b"x"])
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted > 100, interrupted
    client.stats()
gc.collect()
"""
    # When it runs, then each was raised as what it is, and nobody warned of anything
    assert run(code, server.url) == (0, "", "")


def test_a_close_that_was_interrupted_can_be_repeated(server: Server) -> None:
    code = """
import signal, sys
from penstock.client import Client, ClientClosed

signal.signal(signal.SIGALRM, signal.default_int_handler)
for moment in range(1, 50):
    client = Client(sys.argv[1], username="admin", password="adminpassword")
    client.stats()
    try:
        signal.setitimer(signal.ITIMER_REAL, moment * 2e-5)
        client.close()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    client.close()
    try:
        client.stats()
    except ClientClosed:
        continue
    print("it was not closed")
"""
    assert run(code, server.url) == (0, "", "")

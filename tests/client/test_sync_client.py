from __future__ import annotations

import asyncio
import inspect
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock import Outcome
from penstock.client import AsyncClient, Client, ClientClosed, ClientError
from penstock.client.options import ClientOptions
from penstock.errors import QueueNotFound
from tests.client.server import Server


@pytest.fixture
def sync_client(server: Server) -> Iterator[Client]:
    with Client(server.url, username="admin", password="adminpassword") as client:
        yield client


@pytest.fixture
def sync_queue(sync_client: Client, request: pytest.FixtureRequest) -> str:
    name = f"sync-{abs(hash(request.node.name)) % 1_000_000}"
    sync_client.create_queue(name)
    return name


def test_the_round_of_a_message(sync_client: Client, sync_queue: str) -> None:
    published = sync_client.publish(sync_queue, [b"hello"])
    (delivery,) = sync_client.receive(sync_queue, wait_seconds=1)
    outcomes = sync_client.ack(sync_queue, [delivery])

    assert delivery.id == published[0].id
    assert delivery.body == b"hello"
    assert outcomes == [Outcome.DONE]


def test_it_has_every_call_of_the_asynchronous_one() -> None:
    calls = {
        name: method
        for name, method in vars(AsyncClient).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_") and name != "cut_off"
    }

    for name, method in calls.items():
        assert hasattr(Client, name), name
        if name != "close":
            assert inspect.signature(getattr(Client, name)) == inspect.signature(method)


def test_its_options_are_those_of_the_asynchronous_one() -> None:
    taken = set(inspect.signature(AsyncClient).parameters)

    assert {"url", *ClientOptions.__annotations__} == taken


def test_threads_share_requests(sync_client: Client, sync_queue: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        published = list(
            pool.map(lambda n: sync_client.publish(sync_queue, [str(n).encode()]), range(200))
        )

    assert sorted(one[0].index for one in published) == list(range(200))


def test_errors_are_raised_in_the_calling_thread(sync_client: Client) -> None:
    with pytest.raises(QueueNotFound):
        sync_client.queue_stats("nowhere")


def test_close_ends_its_thread_and_it_takes_no_more_calls(server: Server) -> None:
    before = threading.active_count()
    client = Client(server.url, username="user", password="password")
    client.stats()
    client.close()
    client.close()

    assert threading.active_count() == before
    with pytest.raises(ClientClosed):
        client.stats()


def test_close_ends_the_calls_of_other_threads(server: Server, sync_queue: str) -> None:
    client = Client(server.url, username="user", password="password")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.receive, sync_queue, wait_seconds=20)
        while not asyncio.all_tasks(client._loop):
            time.sleep(0.01)
        client.close()

        with pytest.raises(ClientError):
            waiting.result(timeout=15)


def test_an_interrupted_call_is_given_up(server: Server, sync_queue: str) -> None:
    code = (
        "import sys; from penstock import Client\n"
        "with Client(sys.argv[1], username='user', password='password') as client:\n"
        "    client.stats(); print('ready', flush=True)\n"
        "    client.receive(sys.argv[2], wait_seconds=20)\n"
    )
    command = [sys.executable, "-c", code, server.url, sync_queue]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=15)

    assert said.endswith(b"KeyboardInterrupt\n")
    assert b"Task was destroyed" not in said


def test_both_clients_are_names_of_penstock() -> None:
    assert penstock.Client is Client
    assert penstock.AsyncClient is AsyncClient


@pytest.mark.parametrize(
    "call", ["publish('orders', [b'x'])", "ack('orders', ['2.0.1'])", "stats()"]
)
def test_an_interrupt_does_not_wait_for_a_server_that_does_not_answer(call: str) -> None:
    # Given a server that takes connections and says nothing
    code = (
        "import sys; from penstock import Client\n"
        "with Client(sys.argv[1], username='user', password='password') as client:\n"
        f"    client.{call}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [sys.executable, "-c", code, f"http://127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1000)

                # When somebody is tired of waiting
                process.send_signal(signal.SIGINT)

                # Then it is over, long before the patience for an answer is
                _, said = process.communicate(timeout=15)

    assert said.endswith(b"KeyboardInterrupt\n")
    assert b"never" not in said

"""Three servers as processes of their own, as one to those who ask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from penstock.storage.shared import LOOK_SECONDS
from tests.http.client import Client
from tests.http.server import Server, running
from tests.redis.http.conftest import start_options

_SERVERS = 3
_PER_SECOND = 5


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Started at once over a Redis that has never seen one."""
    directory = tmp_path_factory.mktemp("three")
    options = start_options(directory)
    environment = {"PENSTOCK_POP_PER_SECOND": str(_PER_SECOND)}
    with ExitStack() as stack, ThreadPoolExecutor(_SERVERS) as threads:

        def start(number: int) -> Server:
            log = directory / f"log-{number}"
            server = running("memory:", log, *options, environment=environment)
            return stack.enter_context(server)

        yield list(threads.map(start, range(_SERVERS)))


def log_in(server: Server, name: str, password: str) -> str:
    form = {"identifier": name, "password": password}
    answer = server.client().send_json("POST", "/auth/local", form)
    assert answer.status == 200, answer.body
    return str(answer.json["token"])


def status_at(server: Server, token: str) -> int:
    return server.client().ask("GET", "/v1/queues", Authorization=token).status


def add(server: Server, name: str) -> int:
    admin = server.client("admin", "adminpassword")
    new = {"username": name, "password": "secret"}
    return admin.send_json("POST", "/admin/subscribers", new).status


def until_refused(server: Server, token: str) -> None:
    """Within the time that the documentation names, and as much again for a slow machine."""
    deadline = time.monotonic() + 2 * LOOK_SECONDS
    while status_at(server, token) != 401:
        assert time.monotonic() < deadline, "the token still counts"


def test_they_have_one_key_although_they_started_at_once(servers: list[Server]) -> None:
    tokens = [log_in(server, "user", "password") for server in servers]
    for server in servers:
        assert [status_at(server, token) for token in tokens] == [200] * _SERVERS


def test_a_user_is_known_and_then_refused_at_all_of_them(servers: list[Server]) -> None:
    first, *others = servers
    assert add(first, "alice") == 201
    token = log_in(first, "alice", "secret")
    for server in others:
        assert status_at(server, token) == 200
        assert status_at(server, log_in(server, "alice", "secret")) == 200
    # When another one of them changes the password
    form = {"identifier": "alice", "password": "secret", "new_password": "better"}
    assert others[0].client().send_json("POST", "/auth/password", form).status == 200
    for server in servers:
        until_refused(server, token)
        assert server.client("alice", "secret").ask("GET", "/v1/queues").status == 401
    # And the third removes the user
    token = log_in(first, "alice", "better")
    assert [status_at(server, token) for server in servers] == [200] * _SERVERS
    admin = others[1].client("admin", "adminpassword")
    assert admin.ask("DELETE", "/admin/subscribers/alice").status == 204
    for server in servers:
        until_refused(server, token)


def test_one_of_those_that_add_a_user_at_once_does(servers: list[Server]) -> None:
    with ThreadPoolExecutor(_SERVERS) as threads:
        statuses = list(threads.map(lambda server: add(server, "bob"), servers))
    assert sorted(statuses) == [201, 400, 400]


def test_their_limit_is_one(servers: list[Server]) -> None:
    users: list[Client] = [server.client("user", "password") for server in servers]
    assert {user.push("jobs").status for user in users} == {200}
    began = time.time()
    statuses = [user.pop("jobs").status for _ in range(30) for user in users]
    # The seconds that this took, with the one that it began in and the one after its end
    windows = int(time.time() - began) + 2
    assert set(statuses) <= {200, 404, 429}
    admitted = len(statuses) - statuses.count(429)
    assert 1 <= admitted <= _PER_SECOND * windows

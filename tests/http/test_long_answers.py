"""Answers of many megabytes: complete, and never all in memory for a client that reads none."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.http.client import Client, basic
from tests.http.server import Server, running
from tests.programs import QUICK_PENSTOCK

MEBIBYTE = 2**20
MESSAGES = 50
READERS = 4
# Sixteen messages of a mebibyte are read at a time.
PER_READER_BYTES = 32 * MEBIBYTE


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a group and its dead letters, each of fifty messages of nearly a mebibyte."""
    directory = tmp_path_factory.mktemp("wide")
    with running(
        str(directory / "data"),
        directory / "log",
        *("--sync", "never"),
        program=QUICK_PENSTOCK,
        # What is freed is given back at once, so that what is resident is what is held.
        environment={"MALLOC_MMAP_THRESHOLD_": "65536"},
    ) as server:
        user, admin = server.client("user", "password"), server.client("admin", "adminpassword")
        for group in ("wide", "failed"):
            admin.send_json("PUT", f"/v1/queues/{group}", {})
            for number in range(MESSAGES):
                assert user.push(group, content(number)).status == 200
        admin.send_json("PATCH", "/v1/queues/failed/subscriptions/default", {"max_deliveries": 1})
        while popped := user.ask("GET", "/queue/batch/pop?count=50", consumerGroup="failed").json:
            for one in popped:
                assert user.nack("failed", one["id"]).status == 200
        yield server


def content(number: int) -> str:
    return f"{number:03}" + "x" * (MEBIBYTE - 1000)


@pytest.fixture(scope="module", autouse=True)
def quiet_bytes(wide: Server) -> int:
    """What the server takes while nobody asks for anything."""
    return resident_bytes(wide)


@pytest.fixture
def user(wide: Server) -> Client:
    return wide.client("user", "password")


@pytest.fixture
def admin(wide: Server) -> Client:
    return wide.client("admin", "adminpassword")


def numbers(contents: list[str]) -> list[int]:
    assert all(len(one) == len(content(0)) for one in contents)
    return [int(one[:3]) for one in contents]


def test_a_view_has_all_that_was_asked_for(admin: Client) -> None:
    found = admin.view("wide").json
    assert numbers([one["content"] for one in found]) == list(range(MESSAGES))
    found = admin.view("wide", messageCount="33").json
    assert numbers([one["content"] for one in found]) == list(range(33))


def test_a_view_of_dead_letters_has_all(admin: Client) -> None:
    found = admin.ask("GET", "/queue/dlq/view?limit=1000", consumerGroup="failed").json
    assert sorted(numbers([one["content"] for one in found])) == list(range(MESSAGES))


def test_a_view_of_a_subscription_has_all_that_was_asked_for(user: Client) -> None:
    path = "/v1/queues/wide/subscriptions/default/messages?limit="
    for limit in (33, 100):
        found = user.ask("GET", f"{path}{limit}").json
        assert found.keys() == {"messages"}
        assert numbers([one["body"] for one in found["messages"]]) == [*range(min(limit, MESSAGES))]


def test_all_are_found_by_id_and_none_where_there_is_none(user: Client, admin: Client) -> None:
    ids = [one["id"] for one in admin.view("wide").json]
    asked = [*ids[:20], "none", *ids[20:]]
    found = user.send_json("POST", "/v1/queues/wide/messages/find", {"ids": asked}).json
    assert [one and one["id"] for one in found["messages"]] == [*ids[:20], None, *ids[20:]]
    assert numbers([one["body"] for one in found["messages"] if one]) == list(range(MESSAGES))


def test_a_batch_pop_ends_early_and_the_rest_comes_with_the_next(user: Client) -> None:
    # Given more than one answer is to have
    for number in range(20):
        user.push("popped", content(number))
    # When all are asked for
    path = "/queue/batch/pop?count=100"
    first = user.ask("GET", path, consumerGroup="popped").json
    # Then the first come, and the others after them
    assert 0 < len(first) < 20
    rest = user.ask("GET", path, consumerGroup="popped").json
    assert numbers([one["content"] for one in first + rest]) == list(range(20))


@pytest.mark.parametrize(
    "request_line",
    ["GET /queue/view", "GET /v1/queues/wide/messages"],
)
def test_a_client_that_knows_no_chunks_gets_none(wide: Server, request_line: str) -> None:
    """Proxies and old programs ask by HTTP/1.0, and would take the sizes for a part of the body."""
    request = (
        f"{request_line} HTTP/1.0\r\nconsumerGroup: wide\r\nAccept: application/x-ndjson\r\n"
        f"Authorization: {basic('admin', 'adminpassword')}\r\n\r\n"
    )
    answer = b""
    with socket.create_connection(("127.0.0.1", wide.port), timeout=20) as connection:
        connection.sendall(request.encode())
        while part := connection.recv(MEBIBYTE):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    lines = json.loads(body) if "view" in request_line else [*map(json.loads, body.splitlines())]
    contents = [one.get("content") or one["body"] for one in lines]
    assert numbers(contents) == list(range(MESSAGES))


FIND = "POST /v1/queues/wide/messages/find"


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /queue/view",
        "GET /queue/dlq/view?limit=1000",
        "GET /v1/queues/wide/subscriptions/default/messages?limit=100",
        "GET /v1/queues/wide/messages?limit=1000",
        "GET /v1/queues/failed/dead-letters?limit=1000",
        FIND,
    ],
)
def test_a_client_that_does_not_read_takes_little_memory(
    wide: Server, quiet_bytes: int, admin: Client, request_line: str
) -> None:
    body = ""
    if request_line == FIND:
        body = json.dumps({"ids": [one["id"] for one in admin.view("wide").json]})
    group = "failed" if "dlq" in request_line else "wide"
    request = (
        f"{request_line} HTTP/1.1\r\nHost: a\r\nconsumerGroup: {group}\r\n"
        f"Authorization: {basic('admin', 'adminpassword')}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    deadline = time.monotonic() + 20
    while resident_bytes(wide) - quiet_bytes > PER_READER_BYTES:
        assert time.monotonic() < deadline, "what others asked for is still held"
        time.sleep(0.01)
    # Given clients that ask for far more than that, twice, and read nothing
    with ExitStack() as opened:
        for _ in range(READERS):
            reader = opened.enter_context(
                socket.create_connection(("127.0.0.1", wide.port), timeout=20)
            )
            reader.sendall(request * 2)
            assert reader.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
        # Then the server holds no more of it than it may
        assert resident_bytes(wide) - quiet_bytes < READERS * PER_READER_BYTES


def resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024

"""Whatever a client sends, it gets a clear answer or is cut off, and the server goes on."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.http.client import Client, basic
from tests.http.server import Server, lines_of, running
from tests.programs import PENSTOCK

MEBIBYTE = 2**20
AUTHORIZATION = f"Authorization: {basic('user', 'password')}\r\n"
PUSH = f"POST /queue/push HTTP/1.1\r\nHost: a\r\nconsumerGroup: hostile\r\n{AUTHORIZATION}"


@pytest.fixture(autouse=True)
def goes_on(user: Client, group: str) -> Iterator[None]:
    """After each of these the server serves as before."""
    yield
    assert user.push(group).status == 200
    assert user.pop(group).status == 200


def send(port: int, data: bytes, *, seconds: float = 10) -> bytes:
    """All that is answered until the server closes the connection, or nothing comes for long."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    with suppress(ConnectionError, TimeoutError):
        while part := connection.recv(65536):
            answer += part
    return answer


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("path", ["/queue/push", "/queue/batch/push"])
def test_a_body_that_says_it_is_too_large_is_not_read(server: Server, path: str) -> None:
    # Given a client that announces far too much and sends only the beginning
    head = PUSH.replace("/queue/push", path) + f"Content-Length: {100 * 2**30}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head.encode() + b"x" * 1000)
        # Then it is answered and let go, though it never sends the rest
        answer = read_all(connection)
    assert status_of(answer) == 413


def test_a_body_in_chunks_is_cut_off_at_the_limit(server: Server) -> None:
    # Given a client that would send for ever
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall((PUSH + "Transfer-Encoding: chunked\r\n\r\n").encode())
        connection.settimeout(0.001)
        answer = b""
        while not answer and sent < 200 * MEBIBYTE:
            try:
                connection.settimeout(10)
                connection.sendall(chunk)
                sent += 65536
                connection.settimeout(0.001)
                answer = connection.recv(65536)
            except TimeoutError:
                continue
    # Then it is refused soon after the limit
    assert status_of(answer) == 413
    assert sent < 20 * MEBIBYTE


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("options", [[], ["-H", "Expect:"], ["-H", "Transfer-Encoding: chunked"]])
def test_curl_gets_the_413(server: Server, options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"x" * 8 * MEBIBYTE)
    command = ["curl", "-s", "-u", "user:password", "-H", "consumerGroup: hostile", *options]
    command += ["--data-binary", f"@{file}", f"{server.url}/queue/push"]
    done = subprocess.run(command, check=False, capture_output=True, timeout=30)
    assert json.loads(done.stdout)["status"] == 413


def test_who_may_not_send_is_told_so_before_the_body(server: Server) -> None:
    head = PUSH.replace(AUTHORIZATION, "") + f"Content-Length: {MEBIBYTE}\r\n\r\n"
    assert status_of(send(server.port, head.encode())) == 401


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW /coffee HTTP/1.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
        b"POST /queue/push HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /queue/push HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /queue/push HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /queue/push HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_garbage_is_refused(server: Server, garbage: bytes) -> None:
    answer = send(server.port, garbage, seconds=3)
    assert not answer or 400 <= status_of(answer) < 500


def test_random_bytes_are_refused(server: Server) -> None:
    rng = random.Random(1)
    for _ in range(50):
        answer = send(server.port, rng.randbytes(rng.randrange(20, 2000)) + b"\r\n\r\n", seconds=2)
        assert not answer or 400 <= status_of(answer) < 500


@pytest.mark.parametrize(
    "bomb",
    [
        b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 4 * MEBIBYTE,
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 500_000,
        b"GET /" + b"a" * 4 * MEBIBYTE,
    ],
)
def test_a_bomb_of_headers_is_cut_off(server: Server, bomb: bytes) -> None:
    answer = send(server.port, bomb)
    assert not answer or status_of(answer) in (400, 431)


CHUNKED = PUSH + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


@pytest.mark.parametrize(
    ("start", "bomb"),
    [
        ("0\r\n", b"x: y\r\n"),
        ("0\r\nx: ", b"yyyyyy"),
        ("5;x=", b"yyyyyy"),
    ],
    ids=["trailers", "a trailer", "an extension"],
)
def test_a_bomb_in_or_behind_a_chunked_body_is_cut_off(
    server: Server, start: str, bomb: bytes
) -> None:
    # Given a client that would send for ever what is neither head nor body
    answer, sent = b"", 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall((CHUNKED + start).encode())
        with suppress(ConnectionError):
            while sent < 16 * MEBIBYTE:
                connection.sendall(bomb * 10_000)
                sent += len(bomb) * 10_000
        answer = read_all(connection)
    # Then it is refused soon after the limit, however much the kernels hold
    assert not answer or status_of(answer) == 431
    assert sent < 16 * MEBIBYTE


def test_trailers_are_no_headers(server: Server, user: Client, admin: Client, group: str) -> None:
    user.push(group)
    # Given a chunked publish that ends in a header that counts only in the head
    head = CHUNKED.replace("/queue/push", f"/v1/queues/{group}/messages")
    trailers = f"Penstock-Priority: 9\r\nx: {'y' * 60_000}\r\n\r\n"
    # When it is stored
    assert status_of(send(server.port, f"{head}0\r\n{trailers}".encode(), seconds=1)) == 201
    # Then it is as the head says
    _, stored = admin.view(group).json
    assert (stored["content"], stored["priority"]) == ("hello", 0)


def test_deep_json_is_refused(user: Client, admin: Client, group: str) -> None:
    for deep in ("[" * 500_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000):
        assert user.ask("POST", "/queue/batch/push", deep, consumerGroup=group).status == 400
        answer = admin.ask("POST", "/queue/dlq/replay", deep, consumerGroup=group)
        assert answer.status == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "header"),
    [
        ("POST", "/queue/push", b"\xff\xfe", b""),
        ("POST", "/queue/push", b"\xed\xa0\x80", b""),
        ("POST", "/queue/batch/push", b'["\xff"]', b""),
        ("POST", "/queue/batch/push", b'["\\ud800"]', b""),
        ("POST", "/queue/batch/push", b'["a\\u0000b", 1e999]', b""),
        ("POST", "/queue/batch/ack", b'["\xc3"]', b""),
        ("POST", "/queue/ack?id=%ff%fe", b"", b""),
        ("POST", "/queue/ack?id=%ED%A0%80", b"", b""),
        ("POST", "/queue/ack?id=\xff", b"", b""),
        ("GET", "/queue/pop", b"", b"consumerGroup: \xff\xfe\r\n"),
        ("POST", "/queue/push", b"a", b"scheduledAt: \xff\r\n"),
        ("POST", "/queue/push", b"a", b"priority: \xb2\r\n"),
        ("GET", "/queue/pop", b"", b"Authorization: Basic //79\r\n"),
        ("GET", "/%ff%fe", b"", b""),
        ("POST", "/v1/queues", b'{"name": "\xff"}', b""),
        ("POST", "/v1/queues/\xff/messages", b"a", b""),
    ],
)
def test_what_is_no_text_is_refused(
    server: Server, method: str, path: str, body: bytes, header: bytes
) -> None:
    # Given a request that is right but for bytes that are no UTF-8, or no characters
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1"), b"Host: a", b"Connection: close"]
    names = header.lower()
    if not names.startswith(b"authorization"):
        lines.append(f"Authorization: {basic('admin', 'adminpassword')}".encode())
    if not names.startswith(b"consumergroup"):
        lines.append(b"consumerGroup: hostile")
    lines.append(b"Content-Length: %d" % len(body))
    answer = send(server.port, b"\r\n".join([*lines, header + b"\r\n"]) + body)
    # Then it is the client's fault, and it is told so
    assert 400 <= status_of(answer) < 500, answer


def test_bytes_beyond_the_content_length_are_no_part_of_the_message(
    server: Server, admin: Client, group: str
) -> None:
    # Given a client that announces less than it sends
    push = PUSH.replace("hostile", group)
    answer = send(server.port, f"{push}Content-Length: 5\r\n\r\nhello and more\r\n\r\n".encode())
    # Then the rest is taken for another request, which is none
    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses in ([200, 400], [400], [200])
    assert {one["content"] for one in admin.view(group).json} <= {"hello"}


def test_a_length_and_chunks_together_are_refused(
    server: Server, admin: Client, group: str
) -> None:
    """Two servers in a row could take them for different requests."""
    push = PUSH.replace("hostile", group)
    both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    answer = send(server.port, (push + both).encode(), seconds=3)
    assert not answer or status_of(answer) == 400
    assert admin.view(group).json == []


@pytest.mark.parametrize(
    "codings", ["gzip, chunked", "identity, chunked", "gzip\r\nTransfer-Encoding: chunked"]
)
def test_a_transfer_coding_that_is_not_undone_is_refused(
    server: Server, admin: Client, group: str, codings: str
) -> None:
    """Otherwise consumers would get what the coding made of the message, and not be told."""
    push = f"{PUSH.replace('hostile', group)}Transfer-Encoding: {codings}\r\n\r\n"
    coded = "5\r\nhello\r\n0\r\n\r\n"
    # When a coded message is sent, and another request after it
    answer = send(server.port, (push + coded).encode() + b"GET /livez HTTP/1.1\r\n\r\n")
    # Then it is refused, and the connection closed
    assert status_of(answer) == 501
    assert b'"code":"not_implemented"' in answer
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert admin.view(group).json == []


def test_a_half_closed_connection_is_still_answered(server: Server, group: str) -> None:
    pushes = [
        f"{PUSH.replace('hostile', group)}Content-Length: 1\r\n\r\n{n}".encode() for n in range(3)
    ]
    for sent in (pushes[0], b"".join(pushes)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answer = read_all(connection)
        statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [200] * sent.count(b"POST")


def test_a_long_poll_of_a_half_closed_connection_ends_at_once(
    server: Server, admin: Client, group: str
) -> None:
    admin.ask("PUT", f"/v1/queues/{group}")
    path = f"/v1/queues/{group}/subscriptions/default/receive"
    poll = '{"wait_seconds": 20}'
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{AUTHORIZATION}Content-Length: {len(poll)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall((head + poll).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert answer.endswith(b'{"deliveries":[]}')


def test_a_half_closed_connection_gets_the_whole_of_a_stream(
    server: Server, admin: Client, group: str
) -> None:
    batch = json.dumps(["x" * 10_000] * 500)
    assert admin.ask("POST", "/queue/batch/push", batch, consumerGroup=group).status == 200
    request = (
        f"GET /v1/queues/{group}/messages HTTP/1.1\r\nHost: a\r\n{AUTHORIZATION}"
        "Accept: application/x-ndjson\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        answer = read_all(connection)
    assert answer.count(b'"index":') == 500
    assert answer.endswith(b"0\r\n\r\n")


def test_a_client_that_goes_away_in_the_middle_of_its_body_is_no_error(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall((PUSH + "Content-Length: 1000\r\n\r\nabc").encode())
    time.sleep(0.2)
    assert [line for line in server.log_lines() if line["level"] == "error"] == []


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It waits a second for a request to arrive, and has room for 20 connections."""
    environment = {"PENSTOCK_RECEIVE_SECONDS": "1", "PENSTOCK_MAX_CONNECTIONS": "20"}
    log = tmp_path_factory.mktemp("hasty") / "log"
    with running("memory:", log, environment=environment) as server:
        yield server


def test_slow_clients_are_let_go_and_too_many_are_refused(hasty: Server) -> None:
    # Given a server that is soon out of patience
    user = hasty.client("user", "password")
    beginnings = ["", "G", PUSH, PUSH + "Content-Length: 10\r\n\r\nabc"]
    beginnings.append(PUSH + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    slow = [socket.create_connection(("127.0.0.1", hasty.port), timeout=6) for _ in beginnings]
    # When clients send a beginning and nothing more
    for connection, beginning in zip(slow, beginnings, strict=True):
        connection.sendall(beginning.encode())
    # Then others are served
    assert user.push("orders").status == 200
    # And the connections of the slow ones are closed
    for connection, beginning in zip(slow, beginnings, strict=True):
        answer = read_all(connection)
        connection.close()
        assert status_of(answer) == 408, beginning
    assert [line for line in hasty.log_lines() if line["level"] == "error"] == []
    # When there are too many connections, then a request on a new one is refused
    early = HTTPConnection("127.0.0.1", hasty.port, timeout=10)
    early.connect()
    idle = [socket.create_connection(("127.0.0.1", hasty.port)) for _ in range(30)]
    refused = user.ask("GET", "/v1/queues", X_Request_Id="one-too-many")
    assert (refused.status, refused.json["code"]) == (503, "too_many_connections")
    assert (refused.json["request_id"], refused.headers["retry-after"]) == ("one-too-many", "1")
    # And one on a connection that was there before is served
    early.request("GET", "/livez")
    assert early.getresponse().status == 200
    early.close()
    # And when some have gone, so are all
    for connection in idle:
        connection.close()
    deadline = time.monotonic() + 5
    while (status := user.push("orders").status) == 503 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert status == 200
    # And the log has what was refused
    [line] = lines_of(hasty, "one-too-many")
    assert (line["path"], line["status"]) == ("/v1/queues", 503)


@pytest.mark.parametrize(
    ("beginning", "drop"),
    [
        (PUSH, b"x: y\r\n"),
        (PUSH + "Content-Length: 100000\r\n\r\n", b"x"),
        (PUSH + "Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_a_drop_now_and_then_does_not_keep_a_connection(
    hasty: Server, beginning: str, drop: bytes
) -> None:
    # Given a client that sends a little, again and again, and never all of it
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=0.1) as connection:
        connection.sendall(beginning.encode())
        answer = b""
        deadline = time.monotonic() + 20
        while not answer and time.monotonic() < deadline:
            connection.sendall(drop)
            with suppress(TimeoutError):
                answer = connection.recv(65536)
    # Then its time is up, however little it has sent
    assert status_of(answer) == 408


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_an_offer_of_another_protocol_is_passed_over(
    server: Server, admin: Client, group: str, protocol: str
) -> None:
    """Java's client makes one with its first request."""
    offer = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    head = (
        PUSH.replace("hostile", group) + offer + f"Upgrade: {protocol}\r\nContent-Length: 5\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        # When the body comes with the head, after it, or cut in two
        for pieces in ([head + "hello"], [head, "hello"], [head[:-30], head[-30:] + "he", "llo"]):
            for piece in pieces:
                connection.sendall(piece.encode())
                time.sleep(0.02)
            # Then the request is answered as if there had been no offer, on the same connection
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert status_of(answer) == 200
    assert [one["content"] for one in admin.view(group).json] == ["hello"] * 3


def test_requests_in_a_row_on_one_connection_are_answered_in_their_order(
    server: Server, group: str
) -> None:
    # Given three requests that are sent before the first is answered, the last of them too large
    push = PUSH.replace("hostile", group)
    pushes = "".join(f"{push}X-Request-Id: {n}\r\nContent-Length: 1\r\n\r\n{n}" for n in (1, 2))
    large = f"{push}X-Request-Id: 3\r\nContent-Length: {2 * MEBIBYTE}\r\n\r\n"
    answer = send(server.port, (pushes + large).encode() + b"x" * 1000)
    # Then they are answered one after the other
    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 200, 413]
    ids = [
        line.split(b": ")[1] for line in answer.split(b"\r\n") if line.startswith(b"x-request-id")
    ]
    assert ids == [b"1", b"2", b"3"]


def test_many_requests_in_a_row_are_all_answered(server: Server, admin: Client, group: str) -> None:
    # Given a client that sends five hundred requests before it reads a single answer
    push = PUSH.replace("hostile", group)
    pushes = "".join(f"{push}Content-Length: 3\r\n\r\n{n:03}" for n in range(500))
    last = push + "Connection: close\r\nContent-Length: 3\r\n\r\nend"
    answer = send(server.port, (pushes + last).encode())
    # Then each is answered, and stored in its order
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200] * 501
    popped = admin.ask("GET", "/queue/batch/pop?count=100", consumerGroup=group).json
    assert [one["content"] for one in popped] == [f"{n:03}" for n in range(100)]


def test_what_came_before_garbage_is_answered_first(
    server: Server, admin: Client, group: str
) -> None:
    # Given a request with something behind it that is no request, in the same packet
    push = PUSH.replace("hostile", group)
    whole = f"{push}Content-Length: 1\r\n\r\n"
    for number, garbage in enumerate(
        [
            "\0\0\0\0",
            "NONSENSE\r\n\r\n",
            "GET /livez HTTP/1.1\r\nbad header\r\n\r\n",
            push + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            "GET / HTTP/1.1\r\n" + "x: y\r\n" * 50_000 + "\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        ]
    ):
        # When it is stored
        answer = send(server.port, f"{whole}{number}{garbage}".encode())
        # Then that is what the client is told, and nothing else
        assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200], garbage[:40]
    assert len(admin.view(group).json) == 6


@pytest.mark.parametrize("size", [60_000, 66_000, 100_000])
@pytest.mark.parametrize("form", ["GET /livez?{} HTTP/1.1\r\n", "GET /livez HTTP/1.1\r\nx: {}\r\n"])
def test_a_head_may_have_64_kibibytes_however_it_arrives(
    server: Server, form: str, size: int
) -> None:
    head = form.format("y" * size) + "Connection: close\r\n\r\n"
    assert status_of(send(server.port, head.encode())) == (200 if size < 65_536 else 431)


# It waits a second for a client to read.
IMPATIENT = ("-c", "from penstock import server; server.UNREAD_SECONDS = 1; " + PENSTOCK[1])


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_a_client_that_does_not_read_is_cut_off(log: Path, kind: str) -> None:
    # Given a client that asks for more than fits between the two, and reads nothing of it
    with running("memory:", log, program=IMPATIENT) as server:
        admin = server.client("admin", "adminpassword")
        for _ in range(16):
            admin.push("wide", "x" * MEBIBYTE)
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(
                f"GET /v1/queues/wide/messages HTTP/1.1\r\nHost: a\r\n{AUTHORIZATION}"
                f"Accept: {kind}\r\n\r\n".encode()
            )
            assert connection.recv(12) == b"HTTP/1.1 200"
            # Then the server gives it up
            deadline = time.monotonic() + 20
            while is_open(server.port, connection.getsockname()[1]):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert len(read_all(connection)) < 16 * MEBIBYTE


def is_open(port: int, remote_port: int) -> bool:
    """Whether the kernel still has the server's end of a connection."""
    ends = [line.split()[1:3] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = [(int(here.split(":")[1], 16), int(there.split(":")[1], 16)) for here, there in ends]
    return (port, remote_port) in found

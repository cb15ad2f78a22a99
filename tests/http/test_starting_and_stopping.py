"""What survives a stop and a crash, and what a server refuses to start with."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.server import GRACE_SECONDS
from tests.http.client import Answer
from tests.http.server import Server, penstock_command, running


def test_a_graceful_stop_answers_what_it_accepted_and_keeps_it(tmp_path: Path, log: Path) -> None:
    data = str(tmp_path / "data")
    accepted: list[str] = []
    refused: list[Exception] = []
    with running(data, log) as server:
        server.client("user", "password").push("orders", "first")

        def push(worker: int) -> None:
            client = server.client("user", "password")
            for number in range(10_000):
                try:
                    answer = client.push("orders", f"{worker}/{number}")
                except ConnectionRefusedError:
                    return
                except Exception as exc:
                    refused.append(exc)
                    return
                assert answer.status == 200
                accepted.append(answer.json["id"])

        # Given clients that push as fast as they can
        workers = [threading.Thread(target=push, args=[number]) for number in range(4)]
        for worker in workers:
            worker.start()
        while len(accepted) <= 10 and not refused:
            time.sleep(0.01)
        # When it is told to stop, then it ends with success
        assert server.stop() == 0
        for worker in workers:
            worker.join(timeout=10)
        assert [line["event"] for line in server.log_lines()][-1] == "stopped"
    # Then whatever was answered is there after a restart, exactly once
    with running(data, log) as server:
        user = server.client("user", "password")
        found = [one["id"] for one in pop_all(server)]
        assert len(set(found)) == len(found)
        assert set(accepted) <= set(found)
        # A connection that waited to be accepted may have been closed; at most one each.
        assert len(refused) <= len(workers)
        assert user.pop("orders").status == 404


def pop_all(server: Server) -> list[dict[str, str]]:
    user = server.client("user", "password")
    found: list[dict[str, str]] = []
    while part := user.ask("GET", "/queue/batch/pop?count=100", consumerGroup="orders").json:
        found += part
    return found


def test_a_killed_server_keeps_all_that_it_answered(tmp_path: Path, log: Path) -> None:
    data = str(tmp_path / "data")
    with running(data, log) as server:
        user = server.client("user", "password")
        ids = [user.push("orders", str(number)).json["id"] for number in range(20)]
        for id in ids[:5]:
            assert user.pop("orders").json["id"] == id
            assert user.ack("orders", id).status == 200
        assert user.pop("orders").json["id"] == ids[5]
        # And two subscribers, one of whom has gone again
        admin = server.client("admin", "adminpassword")
        for name in ("stays", "goes"):
            value = {"username": name, "password": "secret"}
            assert admin.send_json("POST", "/admin/subscribers", value).status == 201
        assert admin.ask("DELETE", "/admin/subscribers/goes").status == 204
        server.kill()
    with running(data, log) as server:
        admin = server.client("admin", "adminpassword")
        viewed = admin.view("orders").json
        assert [one["id"] for one in viewed] == ids
        assert [one["consumed"] for one in viewed] == [True] * 5 + [False] * 15
        assert server.client("stays", "secret").pop("none").status == 404
        assert server.client("goes", "secret").pop("none").status == 401
        # The reservation holds as well.
        assert [one["id"] for one in pop_all(server)] == ids[6:]


def test_neither_long_polls_nor_idle_connections_hold_up_a_stop(log: Path) -> None:
    answers: list[Answer] = []
    with running("memory:", log) as server:
        # Given two that wait for a message
        admin = server.client("admin", "adminpassword")
        assert admin.send_json("POST", "/v1/queues", {"name": "orders"}).status == 201

        def wait() -> None:
            path = "/v1/queues/orders/subscriptions/default/receive"
            answers.append(admin.send_json("POST", path, {"wait_seconds": 20}))

        waiting = [threading.Thread(target=wait) for _ in range(2)]
        for thread in waiting:
            thread.start()
        time.sleep(0.3)
        assert answers == []
        # And a connection without a request
        with socket.create_connection(("127.0.0.1", server.port)) as idle:
            idle.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            assert idle.recv(1000).startswith(b"HTTP/1.1 200")
            # When the server is told to stop, then it does, at once and with success
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(timeout=GRACE_SECONDS - 1) == 0
        for thread in waiting:
            thread.join(timeout=5)
    # And those who waited are told that there is nothing
    assert [(answer.status, answer.json) for answer in answers] == [(200, {"deliveries": []})] * 2


def test_a_second_signal_forces(log: Path) -> None:
    with (
        running("memory:", log) as server,
        socket.create_connection(("127.0.0.1", server.port)) as slow,
    ):
        # Given a request that never ends
        head = "POST /admin/subscribers HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
        slow.sendall(f"{head}Authorization: Basic YWRtaW46YWRtaW5wYXNzd29yZA==\r\n\r\n".encode())
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(timeout=0.5)
        # When it is told twice, then it does not wait for it to end
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=GRACE_SECONDS - 1)


def refusal(*options: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        penstock_command("serve", "--data", "memory:", "--port", "0", *options),
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


def test_default_passwords_are_not_shown_to_the_world() -> None:
    code, text = refusal("--host", "0.0.0.0")
    assert code == 2
    assert "PENSTOCK_USER_PASSWORD and PENSTOCK_ADMIN_PASSWORD" in text


def test_a_setting_that_makes_no_sense_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["serve", "--sync", "sometimes"])
    assert result.exit_code == 2
    assert "sync" in result.output


def test_a_port_that_is_taken_is_named(server: Server) -> None:
    code, text = refusal("--port", str(server.port))
    assert code == 2
    assert text == (
        f"invalid_argument: cannot listen on 127.0.0.1:{server.port}: Address already in use. "
        "Choose another port or host\n"
    )


def test_a_data_directory_has_one_owner(server: Server) -> None:
    code, text = refusal("--data", server.data)
    assert code == 5
    assert "directory_locked" in text

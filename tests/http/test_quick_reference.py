"""LightQ's quick reference card, line by line, with curl."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.http.server import Server

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

USER = ("-u", "user:password")
ADMIN = ("-u", "admin:adminpassword")


class Curl:
    def __init__(self, server: Server, group: str) -> None:
        self._url = server.url
        self._group = group

    def __call__(self, who: tuple[str, str], path: str, *options: str) -> tuple[int, Any]:
        command = ["curl", "-sS", "-w", "\n%{http_code}", *who, *options]
        command += [f"{self._url}{path}", "-H", f"consumerGroup: {self._group}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body) if body else None

    def push(self, content: str = "message") -> str:
        status, pushed = self(
            USER, "/queue/push", "-X", "POST", "-H", "Content-Type: text/plain", "-d", content
        )
        assert status == 200
        return str(pushed["id"])


@pytest.fixture
def curl(server: Server, group: str) -> Curl:
    return Curl(server, group)


def test_a_message_is_pushed(curl: Curl) -> None:
    status, pushed = curl(
        USER, "/queue/push", "-X", "POST", "-H", "Content-Type: text/plain", "-d", "message"
    )
    assert status == 200
    assert pushed["content"] == "message"
    assert pushed.keys() == {"id", "content", "createdAt", "priority"}


def test_a_message_is_popped_once(curl: Curl) -> None:
    id = curl.push()
    status, popped = curl(USER, "/queue/pop")
    assert (status, popped["id"], popped["content"]) == (200, id, "message")
    assert curl(USER, "/queue/pop")[0] == 404


def test_an_ack_consumes_a_message(curl: Curl) -> None:
    id = curl.push()
    curl(USER, "/queue/pop")
    assert curl(USER, f"/queue/ack?id={id}", "-X", "POST") == (200, None)
    assert curl(USER, "/queue/pop")[0] == 404


def test_a_nack_gives_a_message_back(curl: Curl) -> None:
    id = curl.push()
    curl(USER, "/queue/pop")
    assert curl(USER, f"/queue/nack?id={id}&reason=retry", "-X", "POST") == (200, None)
    assert curl(USER, "/queue/pop")[1]["id"] == id


def test_a_reservation_is_extended(curl: Curl) -> None:
    id = curl.push()
    curl(USER, "/queue/pop")
    path = f"/queue/extend-visibility?id={id}&seconds=60"
    assert curl(USER, path, "-X", "POST") == (200, None)


def test_messages_are_viewed(curl: Curl) -> None:
    id = curl.push()
    headers = ("-H", "messageCount: 10", "-H", "consumed: no")
    status, viewed = curl(ADMIN, "/queue/view", *headers)
    assert status == 200
    assert [one["id"] for one in viewed] == [id]


def test_dead_letters_are_viewed_and_replayed(curl: Curl) -> None:
    # Given a message that failed as often as is allowed
    id = curl.push()
    for _ in range(5):
        assert curl(USER, "/queue/pop")[0] == 200
        curl(USER, f"/queue/nack?id={id}&reason=retry", "-X", "POST")
    assert curl(USER, "/queue/pop")[0] == 404
    # Then it is among the dead letters
    status, letters = curl(ADMIN, "/queue/dlq/view?limit=10")
    assert status == 200
    assert [letter["id"] for letter in letters] == [id]
    # When it is replayed, then it is back
    replay = ("-X", "POST", "-H", "Content-Type: application/json", "-d", json.dumps([id, "id2"]))
    assert curl(ADMIN, "/queue/dlq/replay", *replay) == (200, 1)
    assert curl(ADMIN, "/queue/dlq/view?limit=10") == (200, [])
    assert curl(USER, "/queue/pop")[1]["id"] == id

"""The quick start in the README does what it says, with curl and from Python."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.docs.page import blocks_in, python_in
from tests.http.client import Client
from tests.http.server import Server

SHOWN = "http://127.0.0.1:8080"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_calls_with_curl_run_one_after_the_other(server: Server, admin: Client) -> None:
    # Given the lines that are shown, but for the server's place
    [block] = [block for block in blocks_in("README.md", "sh") if "curl" in block]
    lines = block.replace("\\\n", " ").replace(SHOWN, server.url).splitlines()
    commands = [line for line in lines if line.startswith("curl")]
    assert len(commands) == 4
    admin.ask("DELETE", "/v1/queues/orders")  # others may have used it
    # When they are run, each with the id that the first one answered
    answers: list[bytes] = []
    for command in commands:
        id = json.loads(answers[0])["id"] if answers else ""
        line = command.replace("curl ", "curl -sS --fail-with-body ").replace("<id>", id)
        done = subprocess.run(line, shell=True, check=True, capture_output=True, timeout=30)
        answers.append(done.stdout)
    # Then the message was pushed, popped, consumed and shown
    pushed, popped, _, viewed = answers
    assert json.loads(popped)["id"] == json.loads(pushed)["id"]
    assert [one["consumed"] for one in json.loads(viewed)] == [True]
    admin.ask("DELETE", "/v1/queues/orders")


def test_the_python_runs(server: Server, admin: Client, capsys: pytest.CaptureFixture[str]) -> None:
    [piece] = [piece for piece in python_in("README.md") if piece.needs_server]
    exec(piece.padded.replace("Client(", f"Client({server.url!r}, "), {})
    assert capsys.readouterr().out == "0 b'first'\n1 b'second'\n"
    stats = admin.ask("GET", "/v1/queues/invoices").json["subscriptions"][0]
    assert stats["acked"] == 2
    admin.ask("DELETE", "/v1/queues/invoices")

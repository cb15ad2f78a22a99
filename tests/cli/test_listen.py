"""``penstock listen`` and ``penstock sub graph``."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.clock import SystemClock
from penstock.push.signing import Signer
from tests.cli.shell import Shell
from tests.cli.test_following import line_of, running

SECRET = f"whsec_{base64.b64encode(b'k' * 32).decode()}"


@contextmanager
def listening(penstock: Shell, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with running(penstock, "listen", *arguments) as process:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert said.startswith("listening on http://127.0.0.1:")
        yield process, said.split()[2]


def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def signed(secret: str, body: bytes) -> dict[str, str]:
    return Signer([secret]).headers("msg_1", SystemClock().now_ns() // 10**9, body)


def subscriptions(penstock: Shell, queue: str) -> list[Any]:
    return [one["name"] for one in penstock.json("sub", "list", queue)]


def test_messages_of_a_queue_are_called_back_verified_and_printed(
    penstock: Shell, queue: str
) -> None:
    penstock.ok("publish", queue, "-m", "there already")
    with listening(penstock, "-q", queue, "--sub", "ear", "--start", "earliest", "--json") as (
        process,
        _,
    ):
        first = json.loads(line_of(process))
        options = ["--topic", "a b", "-a", "größe=3 €", "--content-type", "text/plain"]
        penstock.ok("publish", queue, "-m", "new", *options)
        second = json.loads(line_of(process))

        assert (first["verdict"], first["body"], first["index"]) == ("verified", "there already", 0)
        assert (second["verdict"], second["body"], second["index"]) == ("verified", "new", 1)
        assert (second["queue"], second["subscription"]) == (queue, "ear")
        assert (second["topic"], second["attributes"]) == ("a b", {"größe": "3 €"})
        assert second["content_type"].startswith("text/plain")

        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    assert subscriptions(penstock, queue) == ["default"]


def test_it_ends_after_so_many_calls_and_takes_its_subscription_back(
    penstock: Shell, queue: str
) -> None:
    with listening(penstock, "-q", queue, "--notify", "-n", "1") as (process, _):
        penstock.ok("publish", queue, "-m", "a")
        line = line_of(process).decode()
        assert process.wait(30) == 0
    assert "  verified  " in line
    assert '"lowest_unacked_index":0' in line
    assert subscriptions(penstock, queue) == ["default"]


def test_a_call_that_it_cannot_verify_is_shown_and_answered_with_401(penstock: Shell) -> None:
    with listening(penstock, "--secret", SECRET) as (process, url):
        assert post(url, b"good", signed(SECRET, b"good")) == 200
        assert post(url, b"forged\x1b", signed(SECRET, b"good")) == 401
        assert post(url, b"plain", {}) == 401

        lines = [line_of(process).decode() for _ in range(3)]
    assert "  verified  msg_1  good" in lines[0]
    assert "  refused  msg_1  (none of the call's signatures" in lines[1]
    assert r"forged\x1b" in lines[1]
    assert "  refused  (no id)  (the call is not signed" in lines[2]


def test_without_a_secret_everything_is_taken_unchecked_and_answered_as_told(
    penstock: Shell,
) -> None:
    with listening(penstock, "--status", "503", "-n", "1", "--json") as (process, url):
        assert post(url, b"\xff", {}) == 503
        arrival = json.loads(line_of(process))
        assert process.wait(30) == 0
    assert arrival["verdict"] == "unchecked"
    assert base64.b64decode(arrival["body_base64"]) == b"\xff"


def test_wrong_usage_exits_with_2_and_a_refusal_with_1(penstock: Shell, queue: str) -> None:
    taken = penstock.url.rpartition(":")[2]

    assert penstock("listen", "--sub", "ear").exit_code == 2
    assert penstock("listen", "-q", queue, "--start", "someday").exit_code == 2
    for arguments, code in [
        (["-q", "nowhere"], "queue_not_found"),
        (["-q", queue, "--sub", "default"], "subscription_exists"),
        (["-q", queue, "--filter", "1 +"], "invalid_filter"),
        (["--port", taken], "invalid_argument"),
        (["--secret", "nonsense"], "invalid_argument"),
    ]:
        result = penstock("listen", *arguments)
        assert (result.exit_code, result.stderr.partition(":")[0]) == (1, code)
    assert penstock("listen", "--port", taken).stderr == (
        f"invalid_argument: cannot listen on 127.0.0.1:{taken}: Address already in use. "
        "Choose another port or host\n"
    )


def test_a_secret_is_shown_once_and_rotated(penstock: Shell, queue: str) -> None:
    callback = ["--callback", "url=http://127.0.0.1:1/a?b=c,d,mode=notify"]
    made = penstock.json("sub", "create", queue, "called", *callback)
    shown = penstock.ok("sub", "create", queue, "other", *callback)

    assert made["config"]["callback"]["url"] == "http://127.0.0.1:1/a?b=c,d"
    assert made["secret"].startswith("whsec_")
    assert "(it is not shown again)" in shown
    assert "whsec_" not in penstock.ok("sub", "show", queue, "other")
    assert penstock.ok("sub", "rotate-secret", queue, "called").startswith("whsec_")
    assert penstock.json("sub", "rotate-secret", queue, "called")["secret"] != made["secret"]


def test_dependencies_are_drawn(penstock: Shell, queue: str) -> None:
    penstock.ok("sub", "create", queue, "audit", "--filter", 'topic == "a|b"')
    penstock.ok("sub", "create", queue, "billing", "--after", "default")
    last = ["--after", "billing,audit", "--on-dead-parent", "cascade"]
    penstock.ok("sub", "create", queue, "end", *last)
    penstock.ok("publish", queue, "-m", "a")

    assert penstock.ok("sub", "graph", queue) == "\n".join(
        [
            "flowchart LR",
            f'    q[("{queue}")]',
            '    s0["default"]',
            '    s1["audit"]',
            '    s2["billing<br/>1 held"]',
            '    s3["end<br/>1 held"]',
            "    q --> s0",
            '    q -->|"topic == #34;a#124;b#34;"| s1',
            "    s0 --> s2",
            '    s2 -->|"cascade"| s3',
            '    s1 -->|"cascade"| s3',
            "",
        ]
    )
    found = penstock.json("sub", "graph", queue)
    assert [one["name"] for one in found["subscriptions"]] == ["default", "audit", "billing", "end"]
    assert found["dependencies"][0] == {
        "before": "default",
        "after": "billing",
        "on_dead_parent": "hold",
    }

"""The examples run, against a real server: a publisher, and a subscriber that is called back."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.client import Client
from tests.http.server import Server, running
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60


class Example:
    """A program of the examples, and what it says."""

    def __init__(self, name: str, server: Server, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / name), "--url", server.url, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.said: list[str] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line.strip())

    def wait_for(self, text: str) -> str:
        """The next line that begins so."""
        while True:
            try:
                line = self._lines.get(timeout=WAIT_SECONDS)
            except queue.Empty:
                raise AssertionError(f"it never said {text!r}, but {self.said}") from None
            self.said.append(line)
            if line.startswith(text):
                return line

    def end(self) -> int:
        return self._process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        self._reader.join()


@contextmanager
def example(name: str, server: Server, *arguments: str) -> Iterator[Example]:
    started = Example(name, server, *arguments)
    try:
        yield started
    finally:
        started.kill()


def publish(server: Server, *texts: str) -> list[str]:
    with example("publisher.py", server, *texts) as publisher:
        assert publisher.end() == 0
        return [publisher.wait_for("published") for _ in texts]


def test_a_subscriber_is_called_back_polls_acks_later_retries_and_resumes(tmp_path: Path) -> None:
    with running(str(tmp_path / "data"), tmp_path / "log") as server:
        # Given a subscriber that would ack in an hour
        with example("subscriber.py", server, "--ack-seconds", "3600") as subscriber:
            subscriber.wait_for("listening")
            # When three messages are published
            assert publish(server, "one", "two", "three") == [
                "published 0 one",
                "published 1 two",
                "published 2 three",
            ]
            # Then it is told, and polls them
            told = subscriber.wait_for("told")
            assert '"lowest_unacked_index":0,"ready":3' in told
            for line in ("handled 0 one", "handled 1 two", "handled 2 three"):
                subscriber.wait_for(line)
            # And it dies before it acked any
        # When it is started again
        with example("subscriber.py", server, "--ack-seconds", "0.1") as subscriber:
            # Then it has the same messages again, and acks them
            for index, text in enumerate(("one", "two", "three")):
                subscriber.wait_for(f"again {index} for the 2. time")
                subscriber.wait_for(f"handled {index} {text}")
            subscriber.wait_for("acked")
            # And goes on behind them; one that it cannot handle at first it asks for again
            publish(server, "four?", "five")
            subscriber.wait_for("failed 3 not now")
            subscriber.wait_for("again 3 for the 2. time")
            subscriber.wait_for("handled 3 four?")
            subscriber.wait_for("handled 4 five")
            subscriber.wait_for("acked")
            with Client(server.url, username="user", password="password") as client:
                stats = client.subscription_stats("news", "reader")
            assert stats.acked + stats.in_flight == 5


@pytest.mark.parametrize("command", [["publisher.py", "one"], ["subscriber.py"]])
def test_an_example_without_a_server_says_so_in_a_line(command: list[str]) -> None:
    name, *arguments = command
    url = f"http://127.0.0.1:{free_port()}"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), "--url", url, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 1
    assert done.stderr == f"unreachable: no connection to {url}: connection refused\n"

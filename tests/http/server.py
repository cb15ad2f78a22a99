"""A real server in a process of its own, on a free port of loopback."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.http.client import Client
from tests.programs import PENSTOCK

__all__ = ["Server", "lines_of", "penstock_command", "running"]

_numbers = itertools.count()
_WAIT_SECONDS = 30


def penstock_command(*arguments: str, program: Sequence[str] = PENSTOCK) -> list[str]:
    return [sys.executable, *program, *arguments]


class Server:
    """Started by the constructor, which returns once it listens."""

    def __init__(
        self,
        data: str | None,
        log: Path,
        *options: str,
        program: Sequence[str] = PENSTOCK,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data or ""
        self._log = log
        directory = () if data is None else ("--data", data)
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                penstock_command("serve", "--port", "0", *directory, *options, program=program),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
            )
        self.url = self._wait_for_url()
        self.port = urlsplit(self.url).port or 0

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.log_lines():
                if line.get("event") == "serving":
                    return str(line["url"])
            time.sleep(0.02)
        raise AssertionError(f"the server did not start: {self.log_text()}")

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def log_lines(self) -> list[dict[str, Any]]:
        lines = self.log_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def client(self, name: str | None = None, password: str = "") -> Client:
        return Client(self.port, name, password)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=_WAIT_SECONDS)

    def stop(self) -> int:
        """By SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=_WAIT_SECONDS)


@contextmanager
def running(
    data: str | None,
    log: Path,
    *options: str,
    program: Sequence[str] = PENSTOCK,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    server = Server(data, log, *options, program=program, environment=environment)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def lines_of(server: Server, request_id: str) -> list[dict[str, Any]]:
    """All that are due: they are written in their order, a moment later."""
    marker = f"marker-{next(_numbers)}"
    server.client("user", "password").ask("GET", "/livez", X_Request_Id=marker)
    deadline = time.monotonic() + 10
    while True:
        lines = server.log_lines()
        if any(line.get("request_id") == marker for line in lines):
            return [line for line in lines if line.get("request_id") == request_id]
        assert time.monotonic() < deadline
        time.sleep(0.01)

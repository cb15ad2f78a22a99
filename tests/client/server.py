"""A real server in a process of its own, which can be killed and started again."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client import AsyncClient
from tests.ports import free_port
from tests.programs import QUICK_PENSTOCK

START_SECONDS = 60


class Server:
    """Its port stays the same from one start to the next."""

    def __init__(
        self, data: str, log: Path, *, program: Sequence[str] = QUICK_PENSTOCK, **environment: str
    ) -> None:
        self._program = program
        self._data = data
        self._log = log
        self._environment = environment
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Neither ended nor killed."""
        return self._process is not None and self._process.poll() is None

    def client(self, *, admin: bool = True, **options: object) -> AsyncClient:
        name, password = ("admin", "adminpassword") if admin else ("user", "password")
        return AsyncClient(self.url, username=name, password=password, **options)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(signal.SIGKILL)

    def start(self) -> None:
        command = [
            sys.executable,
            *self._program,
            *["serve", "--port", str(self.port), "--data", self._data, "--log-level", "warning"],
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stderr=log, stdout=log, env={**os.environ, **self._environment}
            )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {self._log.read_text()}")
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self.send(number)
            self._process.wait(START_SECONDS)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

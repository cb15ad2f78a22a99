"""The Penstock server, started as a user starts it, and the no-op handler beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.http.service import free_port, running
from penstock.client import AsyncClient

USER = "user"
PASSWORD = "password"
QUEUE = "bench"


class Address(NamedTuple):
    port: int
    process_id: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> AsyncClient:
        return AsyncClient(self.url, username=USER, password=PASSWORD)

    def admin(self) -> AsyncClient:
        return AsyncClient(self.url, username="admin", password="adminpassword")


@contextmanager
def penstock_server(directory: Path) -> Iterator[Address]:
    """With its defaults: sync `always`, auth on, a JSON line in the log for every request."""
    port = free_port()
    command = [
        *[sys.executable, "-c", "from penstock.cli import main; main()", "serve"],
        *["--port", str(port), "--data", str(directory / "data")],
    ]
    with running(command, port=port, directory=directory) as process_id:
        yield Address(port, process_id)


@contextmanager
def noop_server(directory: Path, *options: str) -> Iterator[Address]:
    """A handler that does nothing, on BlackSheep; `noop.py` knows the options."""
    port = free_port()
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "benchmarks/http/noop.py"), str(port), *options]
    with running(command, port=port, directory=directory) as process_id:
        yield Address(port, process_id)

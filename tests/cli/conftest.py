from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.cli.shell import Shell
from tests.client.server import Server

_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests; they keep apart by queue."""
    with Server("memory:", tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.fixture
def penstock(server: Server) -> Shell:
    return Shell(server.url)


@pytest.fixture
def queue(penstock: Shell) -> str:
    name = f"queue-{next(_numbers)}"
    penstock.ok("queue", "create", name)
    return name

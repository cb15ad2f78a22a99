from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from penstock.http.auth import passwords
from tests.http.client import Client
from tests.http.server import Server, running
from tests.programs import QUICK_PENSTOCK

_numbers = count()


@pytest.fixture(autouse=True)
def quick_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the tests' process; most servers do as they always do."""
    monkeypatch.setattr(passwords, "ROUNDS", 4)
    # To learn where an application is made, the framework reads the source of the whole stack.
    monkeypatch.setattr(inspect, "stack", partial(inspect.stack, 0))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that need no settings of their own; they keep apart by group."""
    directory = tmp_path_factory.mktemp("server")
    with running(str(directory / "data"), directory / "log", program=QUICK_PENSTOCK) as server:
        yield server


@pytest.fixture
def user(server: Server) -> Client:
    return server.client("user", "password")


@pytest.fixture
def admin(server: Server) -> Client:
    return server.client("admin", "adminpassword")


@pytest.fixture
def anyone(server: Server) -> Client:
    return server.client()


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import FrameType

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
    monkeypatch.setattr(inspect, "stack", _callers)


def _callers() -> list[tuple[FrameType, str, int]]:
    """As much as the framework wants to know of who makes an application.

    Python would read the source of all of them.
    """
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.append((frame, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


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

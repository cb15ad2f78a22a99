from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from penstock.client import AsyncClient
from tests.client.recorder import Recorder
from tests.client.server import Server

_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that do not stop it; they keep apart by queue."""
    with Server("memory:", tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with a log on disk, for tests that kill it and start it again."""
    directory = tmp_path_factory.mktemp("mortal")
    with Server(str(directory / "data"), directory / "log") as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with server.client() as client:
        yield client


@pytest.fixture
async def queue(client: AsyncClient) -> str:
    name = f"queue-{next(_numbers)}"
    await client.create_queue(name)
    return name


@pytest.fixture
def recorder(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What the client sends from here on."""
    return Recorder(client, monkeypatch)

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.broker import Broker
from tests.contract.backends import BACKENDS, Backend
from tests.contract.clock import ManualClock
from tests.contract.world import QUEUE, World

WITHIN_ONE_LIFE = "within_one_life"
OVER_RESTARTS = "over_restarts"
WITH_A_LOG = "with_a_log"
_ROOM_BYTES = 2**30


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{WITHIN_ONE_LIFE}: calls that wait for each other in one open store"
    )
    config.addinivalue_line(
        "markers", f"{OVER_RESTARTS}: only where what was stored survives a restart"
    )
    config.addinivalue_line("markers", f"{WITH_A_LOG}: only where events are kept in a log")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        marks = {mark.name for mark in metafunc.definition.iter_markers()}
        module = metafunc.module.__name__.rpartition(".test_")[2]
        backends = [
            backend
            for backend in BACKENDS
            if not (WITHIN_ONE_LIFE in marks and backend.restarts_always)
            and not (OVER_RESTARTS in marks and not backend.survives_restart)
            and not (WITH_A_LOG in marks and not backend.has_a_log)
            and (backend.modules is None or module in backend.modules)
        ]
        metafunc.parametrize("backend", backends, ids=lambda backend: backend.name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def directory() -> Iterator[Path]:
    """In memory where there is room: a restart before every call syncs more than most disks like.

    What a disk may do to a log is for the simulation, and for `tests/faults` and `tests/crash`.
    """
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM_BYTES
    with tempfile.TemporaryDirectory(dir=memory if has_room else None) as path:
        data = Path(path, "data")
        data.mkdir()
        yield data


@pytest_asyncio.fixture
async def world(backend: Backend, clock: ManualClock, directory: Path) -> AsyncIterator[World]:
    world = World(backend, directory, clock)
    await world.open()
    yield world
    await world.close()
    if backend.remove is not None:
        await backend.remove(directory)


@pytest.fixture
def broker(world: World) -> Broker:
    return world.broker


@pytest_asyncio.fixture
async def queue(broker: Broker) -> str:
    """A plain queue."""
    await broker.create_queue(QUEUE)
    return QUEUE

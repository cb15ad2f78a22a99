from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.storage.wal.files import DiskFiles, Files
from tests.simulation.files import SimulatedFiles


@pytest.fixture(params=["disk", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A directory, once on the real disk and once in memory."""
    if request.param == "disk":
        return DiskFiles(tmp_path / "data")
    return SimulatedFiles(random.Random(7))


@pytest.fixture
def simulated() -> SimulatedFiles:
    return SimulatedFiles(random.Random(7))

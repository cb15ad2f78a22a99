"""The stores that the same business code runs on."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["wal"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an ingest queue keeps its messages: empty, and this test's own."""
    assert request.param == "wal"
    return f"wal:{tmp_path / 'data'}"

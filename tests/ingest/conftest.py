"""The stores that the same business code runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.redis_server import redis_url, remove_keys, unique_prefix, with_prefix


@pytest_asyncio.fixture(params=["wal", "redis"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where an ingest queue keeps its messages: empty, and this test's own."""
    if request.param == "wal":
        yield f"wal:{tmp_path / 'data'}"
        return
    prefix = unique_prefix(tmp_path)
    yield with_prefix(redis_url(), prefix)
    await remove_keys(redis_url(), prefix)

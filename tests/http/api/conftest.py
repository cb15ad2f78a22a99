from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.api.world import World, world


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world() as api:
        yield api

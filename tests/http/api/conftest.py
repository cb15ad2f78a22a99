from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.http import passwords
from tests.http.api.world import World, world


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "ROUNDS", 4)


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world() as api:
        yield api

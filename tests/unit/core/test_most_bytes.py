"""How many messages a receive with a limit of bytes takes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker import Broker
from penstock.core import delivery
from penstock.storage.memory import MemoryStore

_SIZES = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=6)


@given(batches=_SIZES, most_bytes=st.integers(1, 400), limit=st.integers(1, 20))
def test_seeing_at_once_that_all_fit_gives_what_adding_them_up_gives(
    batches: list[list[int]], most_bytes: int, limit: int
) -> None:
    async def received() -> list[int]:
        async with Broker(MemoryStore()) as broker:
            await broker.create_queue("q")
            for sizes in batches:
                await broker.publish("q", [b"x" * size for size in sizes])
            found = await broker.receive("q", limit=limit, most_bytes=most_bytes)
            return [one.index for one in found]

    at_once = asyncio.run(received())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "_surely_fit", lambda *_: False)
        assert asyncio.run(received()) == at_once

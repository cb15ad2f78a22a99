"""How long messages and dead letters live."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.broker import Broker
from penstock.storage.memory import MemoryStore
from tests.contract.clock import ManualClock
from tests.http.client import Answer
from tests.http.in_process import InProcess, application


class World:
    def __init__(self, app: InProcess, store: MemoryStore, clock: ManualClock) -> None:
        self._app = app
        self._store = store
        self._clock = clock

    async def ask(self, method: str, path: str, body: bytes = b"", query: str = "") -> Answer:
        group = {"consumerGroup": "orders"}
        return await self._app.ask(method, path, body, query=query, name="admin", **group)

    async def contents(self, path: str = "/queue/view") -> list[str]:
        return [one["content"] for one in (await self.ask("GET", path)).json]

    async def pass_minutes(self, minutes: float) -> None:
        self._clock.advance(minutes * 60)
        await self._store.tick()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    settings = {"retention_minutes": 60, "dead_letter_minutes": 10, "max_deliveries": 1}
    async with Broker(store) as broker, application(broker, **settings) as app:
        yield World(app, store, clock)


async def test_a_message_lives_as_long_as_the_setting_says_consumed_or_not(world: World) -> None:
    # Given a consumed message and one that is not
    for content in (b"consumed", b"left"):
        await world.ask("POST", "/queue/push", content)
    popped = await world.ask("GET", "/queue/pop")
    acked = await world.ask("POST", "/queue/ack", query=f"id={popped.json['id']}")
    assert acked.status == 200
    # When most of the time has passed, then both are there
    await world.pass_minutes(59)
    assert await world.contents() == ["consumed", "left"]
    # When all of it has, then neither is
    await world.pass_minutes(2)
    assert await world.contents() == []
    assert (await world.ask("GET", "/queue/pop")).status == 404


async def test_a_dead_letter_lives_as_long_as_the_setting_says(world: World) -> None:
    await world.ask("POST", "/queue/push", b"broken")
    popped = await world.ask("GET", "/queue/pop")
    await world.ask("POST", "/queue/nack", query=f"id={popped.json['id']}")
    await world.pass_minutes(9)
    assert await world.contents("/queue/dlq/view") == ["broken"]
    await world.pass_minutes(2)
    assert await world.contents("/queue/dlq/view") == []

"""How long messages and dead letters live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker import Broker
from penstock.core.config import SubscriptionConfig
from penstock.storage.base import Change
from penstock.storage.memory import MemoryStore
from tests.contract.clock import ManualClock
from tests.http.client import Answer
from tests.http.in_process import InProcess, application


class World:
    def __init__(
        self, app: InProcess, broker: Broker, store: MemoryStore, clock: ManualClock
    ) -> None:
        self.broker = broker
        self._app = app
        self._store = store
        self._clock = clock

    async def ask(self, method: str, path: str, body: bytes = b"", query: str = "") -> Answer:
        group = {"consumerGroup": "orders"}
        return await self._app.ask(method, path, body, query=query, name="admin", **group)

    async def contents(self, path: str = "/queue/view") -> list[str]:
        return [one["content"] for one in (await self.ask("GET", path)).json]

    async def letters(self) -> int:
        """Without a look at them."""
        return (await self.broker.queue_stats("orders")).dead_letters

    async def pass_minutes(self, minutes: float) -> None:
        self._clock.advance(minutes * 60)
        await self._store.tick()


@asynccontextmanager
async def opened(**settings: float) -> AsyncIterator[World]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Broker(store) as broker, application(broker, clock, **settings) as app:
        yield World(app, broker, store, clock)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened(retention_minutes=60, dead_letter_minutes=10, max_deliveries=1) as world:
        yield world


async def test_a_group_is_as_the_settings_say_from_its_first_moment() -> None:
    # Given a server that may be killed, or asked for a message, after any change
    seen: list[SubscriptionConfig] = []

    class Watched(MemoryStore):
        async def define(self, change: Change) -> None:
            await super().define(change)
            seen.append((await self.queue_stats("orders")).subscriptions[0].config)

    async with (
        Broker(Watched()) as broker,
        application(broker, visibility_timeout_seconds=7, max_deliveries=3) as app,
    ):
        # When a push creates a group
        assert (await app.ask("POST", "/queue/push", b"a", consumerGroup="orders")).status == 200
    # Then it never was otherwise
    assert {(one.lease_seconds, one.max_deliveries) for one in seen} == {(7, 3)}


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


@pytest.mark.parametrize("by", ["nack", "timeout"])
async def test_a_dead_letter_lives_as_long_as_the_setting_says_whether_or_not_it_is_looked_at(
    world: World, by: str
) -> None:
    # Given a message that was nacked, or never heard of again
    await world.ask("POST", "/queue/push", b"broken")
    popped = await world.ask("GET", "/queue/pop")
    if by == "nack":
        await world.ask("POST", "/queue/nack", query=f"id={popped.json['id']}")
    await world.pass_minutes(1)
    assert await world.letters() == 1
    # Then it is gone when its time is up, counted from its failure
    await world.pass_minutes(8.5)
    assert await world.letters() == 1
    await world.pass_minutes(1.5)
    assert await world.letters() == 0
    assert await world.contents("/queue/dlq/view") == []


async def test_the_setting_counts_for_a_group_that_was_there_before(world: World) -> None:
    await world.broker.create_queue("orders")
    await world.broker.alter_subscription("orders", "default", max_deliveries=1)
    await world.ask("POST", "/queue/push", b"broken")
    await world.ask("GET", "/queue/pop")
    await world.pass_minutes(1)
    assert await world.letters() == 1
    await world.pass_minutes(10)
    assert await world.letters() == 0


async def test_the_setting_counts_for_a_group_that_is_made_anew(world: World) -> None:
    for _ in range(2):
        await world.ask("POST", "/queue/push", b"broken")
        await world.ask("GET", "/queue/pop")
        await world.pass_minutes(1)
        assert await world.letters() == 1
        await world.pass_minutes(10)
        assert await world.letters() == 0
        await world.broker.delete_queue("orders")


async def test_without_the_setting_a_dead_letter_outlives_its_group() -> None:
    async with opened(retention_minutes=60, max_deliveries=1) as world:
        await world.ask("POST", "/queue/push", b"broken")
        popped = await world.ask("GET", "/queue/pop")
        await world.ask("POST", "/queue/nack", query=f"id={popped.json['id']}")
        await world.pass_minutes(100_000)
        assert await world.contents("/queue/dlq/view") == ["broken"]

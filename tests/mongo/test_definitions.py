"""A definition that was answered is in the record, whatever happens to Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from penstock.broker import Broker
from penstock.errors import StoreUnavailable
from penstock.storage import base
from penstock.storage.redis.store import RedisStore
from tests.mongo.conftest import Addresses, Open

Define = Callable[[Broker], Awaitable[object]]

CHANGES: dict[str, Define] = {
    "create a queue": lambda broker: broker.create_queue("more"),
    "alter a queue": lambda broker: broker.alter_queue("jobs", max_messages=9),
    "alter its dead letters": lambda broker: broker.alter_queue("jobs-dlq", max_messages=9),
    "create a subscription": lambda broker: broker.create_subscription("jobs", "more"),
    "alter a subscription": lambda broker: broker.alter_subscription(
        "jobs", "default", max_in_flight=9
    ),
    "delete a subscription": lambda broker: broker.delete_subscription("jobs", "default"),
    "seek": lambda broker: broker.seek("jobs", "latest"),
    "purge": lambda broker: broker.purge_queue("jobs"),
}


async def _described(broker: Broker) -> object:
    """All that the changes change."""
    return [
        (
            stats.name,
            stats.config,
            stats.messages,
            [(one.name, one.config, one.ready) for one in stats.subscriptions],
        )
        for stats in await broker.stats()
    ]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_one_that_was_answered_outlives_redis(
    change: Define, broker: Broker, addresses: Addresses
) -> None:
    await broker.publish("jobs", [b"a"])
    await change(broker)
    before = await _described(broker)
    await addresses.wipe_redis()
    await broker.read("jobs")
    assert await _described(broker) == before


@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["wiped", "wiped and rebuilt"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_one_that_redis_lost_before_it_was_recorded_is_not_answered(
    change: Define,
    is_rebuilt: bool,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await broker.publish("jobs", [b"a"])
    other = await open_server()

    async def lose() -> None:
        monkeypatch.undo()
        await addresses.wipe_redis()
        if is_rebuilt:
            await other.recover()

    define, operate = RedisStore.define, RedisStore.operate

    async def define_and_lose(self: RedisStore, change: base.Change) -> None:
        await define(self, change)
        await lose()

    async def operate_and_lose(self: RedisStore, queue: str, action: base.Action) -> int:
        count = await operate(self, queue, action)
        await lose()
        return count

    # Given a Redis that is wiped as soon as it has made the change
    monkeypatch.setattr(RedisStore, "define", define_and_lose)
    monkeypatch.setattr(RedisStore, "operate", operate_and_lose)
    # Then it is not said to be made
    with pytest.raises(StoreUnavailable, match="rebuilt"):
        await change(broker)
    # And can be repeated
    await change(broker)

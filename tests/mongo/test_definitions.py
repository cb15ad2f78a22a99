"""A definition that was answered is in the record, whatever happens to Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage import base
from penstock.storage.archiving import QueueState
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.store import RedisStore
from tests.mongo.conftest import Addresses, Open
from tests.redis_server import redis_url

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


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "create a queue"])
async def test_one_whose_queue_is_deleted_before_it_was_recorded_does_not_find_it(
    name: str, broker: Broker, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.publish("jobs", [b"a"])
    other = await open_server()
    rebuilt, asked = RedisStore.rebuilt, 0

    async def delete_and_look(self: RedisStore, queue: str) -> str | None:
        nonlocal asked
        asked += 1
        if asked == 2:  # the first time is before the change
            monkeypatch.undo()
            await Broker(other).delete_queue("jobs")
        return await rebuilt(self, queue)

    # Given another server that deletes the queue once the change is made
    monkeypatch.setattr(RedisStore, "rebuilt", delete_and_look)
    # Then there is nothing to try again
    with pytest.raises(QueueNotFound, match="deleted in the meantime"):
        await CHANGES[name](broker)
    assert await broker.stats() == []


async def test_one_is_not_undone_in_the_record_by_a_copy_that_began_before_it(
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await broker.publish("jobs", [b"a"])
    other = await open_server()
    ensure = Archive.ensure_ttl_indexes

    async def ensure_late(self: Archive, state: QueueState) -> None:
        monkeypatch.undo()
        await ensure(self, state)
        # When its lock is lost, and another server makes a definition
        async with Redis.from_url(redis_url()) as redis:
            await redis.unlink(Keys(addresses.name).lock("copy:jobs"))
        await Broker(other).create_subscription("jobs", "more")

    # Given a server that has read a queue, and stands still before it saves that
    monkeypatch.setattr(Archive, "ensure_ttl_indexes", ensure_late)
    with pytest.raises(StoreUnavailable, match="took too long"):
        await store.copy_all()
    # Then what was answered meanwhile outlives Redis
    await addresses.wipe_redis()
    assert [s.name for s in await broker.subscriptions("jobs")] == ["default", "more"]

"""A queue that the record has is changed while Redis does not have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.config import SubscriptionConfig
from penstock.core.message import Message
from penstock.core.publishing import PublishResult
from penstock.errors import QueueExists, QueueNotFound, StoreUnavailable, SubscriptionNotFound
from penstock.storage import base
from penstock.storage.archiving import QueueState
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from penstock.storage.redis.subscribing import Subscribing
from tests.mongo.conftest import Addresses, Open, redis_rolled_back
from tests.redis_server import redis_url

DuringRebuilding = Callable[
    [Callable[[Broker], Coroutine[Any, Any, object]]], Awaitable[asyncio.Task[object]]
]

_PATIENCE_SECONDS = 0.5


@pytest.fixture
async def other(open_server: Open) -> ArchivedStore:
    """Another server, which has found before that nothing is missing."""
    return await open_server()


@pytest.fixture
async def lost(broker: Broker, other: ArchivedStore, addresses: Addresses) -> str:
    """The id of the second of two messages, which Redis has lost."""
    await broker.publish("jobs", [b"a"])
    async with redis_rolled_back(addresses):
        (lost,) = await broker.publish("jobs", [b"lost"])
    return lost.id


@pytest.fixture
def during_rebuilding(
    store: ArchivedStore, other: ArchivedStore, lost: str, monkeypatch: pytest.MonkeyPatch
) -> DuringRebuilding:
    """Rebuild the queue that has lost a message; meanwhile the other server makes a call."""

    def rebuild(
        call: Callable[[Broker], Coroutine[Any, Any, object]],
    ) -> Awaitable[asyncio.Task[object]]:
        return _during_rebuilding(store, other, monkeypatch, lambda: call(Broker(other)))

    return rebuild


async def test_one_that_is_lost_is_not_made_anew(broker: Broker, addresses: Addresses) -> None:
    # Given a queue that Redis has lost, and nothing else: its node had no data when it came back
    (sent,) = await broker.publish("jobs", [b"a"])
    await _lose(addresses, "jobs")
    # When it is created
    with pytest.raises(QueueExists):
        await broker.create_queue("jobs")
    # Then it has what it had
    assert [m.id for m in await broker.read("jobs")] == [sent.id]


async def test_one_that_is_lost_can_be_deleted(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    await broker.publish("jobs", [b"a"])
    await _lose(addresses, "jobs")
    await broker.delete_queue("jobs")
    other = Broker(await open_server())
    assert await other.names() == []
    await other.create_queue("jobs")
    assert await other.read("jobs") == []


async def test_one_that_is_being_rebuilt_is_not_made_anew(
    broker: Broker, lost: str, during_rebuilding: DuringRebuilding
) -> None:
    # When a queue is created at the moment when it is dropped to be rebuilt
    creating = await during_rebuilding(lambda other: other.create_queue("jobs"))
    # Then it is rebuilt all the same
    with pytest.raises(QueueExists):
        await creating
    assert [m.id for m in await broker.read("jobs")][1:] == [lost]


async def test_one_that_is_being_rebuilt_can_be_deleted(
    broker: Broker, addresses: Addresses, during_rebuilding: DuringRebuilding
) -> None:
    await (await during_rebuilding(lambda other: other.delete_queue("jobs")))
    with pytest.raises(QueueNotFound):
        await broker.read("jobs")
    await addresses.wipe_redis()
    with pytest.raises(QueueNotFound):
        await broker.read("jobs")


@pytest.mark.parametrize("filter", [None, "priority == 0"])
async def test_one_that_is_being_rebuilt_gets_a_subscription(
    broker: Broker, lost: str, during_rebuilding: DuringRebuilding, filter: str | None
) -> None:
    creating = await during_rebuilding(
        lambda other: other.create_subscription("jobs", "more", start=0, filter=filter)
    )
    await creating
    given = await broker.receive("jobs", subscription="more", limit=9)
    assert [d.id for d in given][1:] == [lost]


async def test_what_is_published_to_one_that_is_being_rebuilt_comes_after_what_it_had(
    store: ArchivedStore,
    broker: Broker,
    other: ArchivedStore,
    lost: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop = RedisStore.drop
    publishing: list[asyncio.Task[PublishResult]] = []

    async def drop_and_publish(self: RedisStore, queue: str) -> QueueState | None:
        state = await drop(self, queue)
        publishing.append(asyncio.create_task(Broker(other).publish(queue, [b"new"])))
        await asyncio.wait(publishing, timeout=_PATIENCE_SECONDS)
        return state

    monkeypatch.setattr(RedisStore, "drop", drop_and_publish)
    await store.check_answered()
    ((new,),) = await asyncio.gather(*publishing)
    assert [m.id for m in await broker.read("jobs")][1:] == [lost, new.id]


async def test_a_filter_is_asked_for_again_if_the_queue_was_rebuilt_meanwhile(
    store: ArchivedStore,
    broker: Broker,
    other: ArchivedStore,
    lost: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfill = Subscribing._backfill

    async def backfill_and_rebuild(self: Subscribing, *arguments: Any) -> list[int]:
        found = await backfill(self, *arguments)
        await store.check_answered()
        return found

    # Given a queue that is rebuilt while its messages are put through a new filter
    with monkeypatch.context() as patched:
        patched.setattr(Subscribing, "_backfill", backfill_and_rebuild)
        with pytest.raises(StoreUnavailable):
            await Broker(other).create_subscription("jobs", "more", start=0, filter="priority == 0")
    # Then that can be repeated, and what was restored is put through it, too
    await Broker(other).create_subscription("jobs", "more", start=0, filter="priority == 0")
    given = await broker.receive("jobs", subscription="more", limit=9)
    assert [d.id for d in given][1:] == [lost]


async def test_one_that_is_deleted_while_others_are_rebuilt_stays_deleted(
    store: ArchivedStore, broker: Broker, other: ArchivedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.publish("jobs", [b"a"])
    states = Archive.states

    async def states_and_delete(self: Archive) -> list[QueueState]:
        found = await states(self)
        await Broker(other).delete_queue("jobs")
        return found

    # Given a rebuilding that has read what there is to rebuild before a queue was deleted
    monkeypatch.setattr(Archive, "states", states_and_delete)
    await store.recover()
    assert await broker.names() == []


async def test_events_are_not_made_anew_before_they_are_rebuilt(
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a queue with events, all of which are in the record
    await broker.create_queue("told", events=True)
    await broker.publish("told", [b"a"])
    await store.copy_all()
    before = [m.id for m in await broker.read("told-events")]
    other = await open_server()
    restore = RedisStore.restore

    async def restore_and_alter(self: RedisStore, state: QueueState, *more: Any) -> bool:
        is_restored = await restore(self, state, *more)
        if state.name == "told":
            await other._hot.define(base.AlterQueue(queue="told", changes={"events": True}))
        return is_restored

    # When they are asked for as soon as the queue is back
    await addresses.wipe_redis()
    monkeypatch.setattr(RedisStore, "restore", restore_and_alter)
    await store.recover()
    # Then they are what they were
    assert [m.id for m in await broker.read("told-events")][: len(before)] == before


@pytest.mark.parametrize("change", [{"events": True}, {"max_messages": 9}])
@pytest.mark.parametrize("is_dropped", [False, True], ids=["lost", "being rebuilt"])
async def test_events_that_alone_are_missing_are_not_made_anew(
    change: dict[str, Any],
    is_dropped: bool,
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a queue with events, all of which are in the record
    await broker.create_queue("told", events=True)
    await broker.publish("told", [b"a"])
    await store.copy_all()
    before = [m.id for m in await broker.read("told-events")]
    other = await open_server()
    # When the queue is altered while Redis does not have the events
    if is_dropped:
        async with redis_rolled_back(addresses):
            await broker.publish("told", [b"b"])
            await store.copy_all()
            before = [m.id for m in await broker.read("told-events")]
        altering = await _during_rebuilding(
            other, store, monkeypatch, lambda: broker.alter_queue("told", **change)
        )
        with suppress(StoreUnavailable):  # the queue itself has old data, too
            await altering
    else:
        await _lose(addresses, "told", "-events")
        await broker.alter_queue("told", **change)
    # Then they are what they were
    assert [m.id for m in await broker.read("told-events")][: len(before)] == before


async def test_while_events_are_rebuilt_others_see_the_rest(
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given events that Redis has lost, and something that happened since
    await broker.create_queue("told", events=True)
    await store.copy_all()
    other = await open_server()
    await _lose(addresses, "told", "-events")
    await broker.publish("told", [b"a"])
    messages = Archive.messages
    seen: list[list[str]] = []

    async def messages_and_look(self: Archive, *arguments: Any) -> AsyncIterator[list[Message]]:
        seen.append([stats.name for stats in await Broker(other).stats()])
        await other._hot.tick()
        async for part in messages(self, *arguments):
            yield part

    # When another server lists all queues, and does what is due, while they are rebuilt
    monkeypatch.setattr(Archive, "messages", messages_and_look)
    await store.recover()
    # Then that works, and what has happened is told
    assert seen == [["jobs", "told"]]
    assert len(await broker.read("told-events")) == 1


async def test_one_that_is_lost_while_it_is_copied_is_not_missed_by_who_asks_for_another(
    store: ArchivedStore, broker: Broker, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_queue("told", events=True)
    await broker.publish("told", [b"a"])
    await store.copy_all()
    read = RedisStore.read

    async def lose_and_read(self: RedisStore, queue: str, wanted: Any) -> list[Message]:
        if queue == "told-events":
            monkeypatch.undo()
            await addresses.wipe_redis()
        return await read(self, queue, wanted)

    # Given a Redis that was wiped, and is so again when the events are copied after a rebuild
    await addresses.wipe_redis()
    monkeypatch.setattr(RedisStore, "read", lose_and_read)
    with pytest.raises(StoreUnavailable):
        await broker.receive("jobs")
    # Then it is rebuilt once more
    assert await broker.receive("jobs") == []
    assert len(await broker.read("told-events")) == 1


async def test_a_lost_queue_does_not_become_the_events_of_another(
    broker: Broker, addresses: Addresses
) -> None:
    await broker.create_queue("told-events")
    (sent,) = await broker.publish("told-events", [b"a"])
    await _lose(addresses, "told", "-events")
    with pytest.raises(QueueExists):
        await broker.create_queue("told", events=True)
    assert [m.id for m in await broker.read("told-events")] == [sent.id]


async def test_definitions_from_before_the_loss_are_not_used(
    store: ArchivedStore, other: ArchivedStore, addresses: Addresses, broker: Broker
) -> None:
    # Given a server that knows a subscription, which Redis has lost before it was in the record
    config = SubscriptionConfig()
    await store._hot.define(
        base.CreateSubscription(queue="jobs", subscription="lost", config=config)
    )
    await addresses.wipe_redis()
    await other.recover()
    # When it is used
    # Then it is not found, instead of being looked for in vain
    with pytest.raises(SubscriptionNotFound):
        await broker.receive("jobs", subscription="lost")


async def test_a_name_without_a_queue_does_no_harm(
    store: ArchivedStore, addresses: Addresses, broker: Broker
) -> None:
    # Given a server that died as it was about to create a queue
    async with Redis.from_url(redis_url()) as redis:
        await redis.sadd(f"{addresses.name}:queues", "none")
    # Then others find whether anything is lost
    assert (await store.recover()).archived == {}


async def _during_rebuilding(
    store: ArchivedStore,
    other: ArchivedStore,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[], Coroutine[Any, Any, object]],
) -> asyncio.Task[object]:
    """Rebuild a queue, and return the task of a call.

    ``other`` makes that between the queue's drop and its restore, after it has found that nothing
    is missing.
    """
    is_checked, is_dropped = asyncio.Event(), asyncio.Event()
    check, drop = other._completeness.check, RedisStore.drop

    async def check_early(queue: str = "") -> None:
        await check(queue)
        is_checked.set()
        await is_dropped.wait()

    async def drop_and_wait(self: RedisStore, queue: str) -> QueueState | None:
        state = await drop(self, queue)
        is_dropped.set()
        await asyncio.wait([calling], timeout=_PATIENCE_SECONDS)
        return state

    monkeypatch.setattr(other._completeness, "check", check_early)
    monkeypatch.setattr(RedisStore, "drop", drop_and_wait)
    calling = asyncio.create_task(call())
    await is_checked.wait()
    await store.recover()
    assert is_dropped.is_set()
    return calling


async def _lose(addresses: Addresses, queue: str, suffix: str = "") -> None:
    """Remove all keys of a queue from Redis."""
    pattern = f"{addresses.name}:{{{queue}}}{suffix}*"
    async with Redis.from_url(redis_url()) as redis:
        keys = [key async for key in redis.scan_iter(match=pattern)]
        await redis.unlink(*keys)


async def test_what_is_published_to_one_that_is_made_anew_as_it_is_deleted_is_recorded(
    broker: Broker, open_server: Open, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Broker(await open_server())

    async def make_anew() -> None:
        await other.create_queue("jobs")

    async def publish() -> None:
        while True:
            try:
                await other.publish("jobs", [b"new"])
                return
            except QueueNotFound:
                await asyncio.sleep(0.01)

    names_being_deleted = Archive.names_being_deleted
    tasks: list[asyncio.Task[None]] = []

    async def meanwhile(archive: Archive) -> list[str]:
        if not tasks:
            # When others create it and publish, as the record of the old one is about to be removed
            tasks.extend(asyncio.create_task(work()) for work in (make_anew, publish))
            await asyncio.wait(tasks[1:], timeout=0.5)
        return await names_being_deleted(archive)

    monkeypatch.setattr(Archive, "names_being_deleted", meanwhile)
    await broker.delete_queue("jobs")
    await asyncio.gather(*tasks)
    # Then the record has what was answered
    assert await database["jobs"].count_documents({}) == 1

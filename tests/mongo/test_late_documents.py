"""A document that reaches MongoDB after Redis was wiped and rebuilt from what MongoDB had."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.message import Message, NewMessage
from penstock.core.publishing import PublishResult
from penstock.errors import StoreUnavailable
from penstock.storage import base
from penstock.storage.archiving import QueueState
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from tests.mongo.conftest import Addresses, Open, redis_rolled_back
from tests.redis_server import redis_url


async def test_one_in_whose_place_others_were_published_comes_back_and_so_do_they(
    broker: Broker, addresses: Addresses, database: Any
) -> None:
    # Given a message whose document came after the rebuilding
    await broker.publish("jobs", [b"a"])
    (late,) = await broker.publish("jobs", [b"late"])
    document = await database["jobs"].find_one_and_delete({"_id": late.id})
    await addresses.wipe_redis()
    assert [m.body for m in await broker.read("jobs")] == [b"a"]
    await database["jobs"].insert_one(document)
    # When others are published, the first of them in its place
    with pytest.raises(StoreUnavailable, match="was rebuilt"):
        await broker.publish("jobs", [b"b", b"c"], idempotency_key="k")
    # Then it is there again, and they can be published, each at least once
    await broker.publish("jobs", [b"b", b"c"], idempotency_key="k")
    found = await broker.read("jobs")
    assert found[1].id == late.id
    assert {m.body for m in found} == {b"a", b"late", b"b", b"c"}


async def test_one_that_was_rebuilt_around_is_put_back_before_its_publish_is_answered(
    broker: Broker, addresses: Addresses, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two publishes that Redis has; the document of the first is the one that is late
    other = await open_server()
    await broker.publish("jobs", [b"a"])
    late = await _late_publish(broker, b"late", monkeypatch)
    await Broker(other).publish("jobs", [b"b"])
    # When Redis is wiped and rebuilt without it
    await addresses.wipe_redis()
    await other.recover()
    assert [m.body for m in await other.read("jobs", base.Span(start=0, limit=9))] == [b"a", b"b"]
    late.may_be_written.set()
    (published,) = await late.publishing
    # Then it is where it was once it is answered
    assert [m.body for m in await broker.read("jobs")] == [b"a", b"late", b"b"]
    assert (await broker.find("jobs", [published.id]))[0] is not None


async def test_one_that_was_the_first_of_its_queue_is_put_back_in_front(
    broker: Broker, addresses: Addresses, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a queue that was rebuilt without its first message, whose document is late
    other = await open_server()
    late = await _late_publish(broker, b"late", monkeypatch)
    await Broker(other).publish("jobs", [b"b"])
    await addresses.wipe_redis()
    await other.recover()
    # When that arrives
    late.may_be_written.set()
    await late.publishing
    # Then it is delivered, like any message whose publish was answered
    assert [m.body for m in await broker.receive("jobs", limit=9)] == [b"late", b"b"]


async def test_one_that_arrives_while_the_queue_is_rebuilt_for_another_is_delivered_as_well(
    broker: Broker, addresses: Addresses, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two publishes that were rebuilt around, since both documents are late
    second, other = Broker(await open_server()), await open_server()
    await broker.publish("jobs", [b"a"])
    first_late = await _late_publish(broker, b"first", monkeypatch)
    second_late = await _late_publish(second, b"second", monkeypatch)
    await Broker(other).publish("jobs", [b"b"])
    await addresses.wipe_redis()
    await other.recover()
    drop = RedisStore.drop

    async def after_the_second(self: RedisStore, queue: str) -> QueueState | None:
        second_late.may_be_written.set()
        await second_late.is_written.wait()
        return await drop(self, queue)

    # When one comes, and the other as the queue is about to be rebuilt for that
    monkeypatch.setattr(RedisStore, "drop", after_the_second)
    first_late.may_be_written.set()
    await asyncio.gather(first_late.publishing, second_late.publishing)
    # Then both are delivered
    given = await broker.receive("jobs", limit=9)
    assert [m.body for m in given] == [b"a", b"first", b"second", b"b"]


@dataclass(frozen=True, kw_only=True)
class _Late:
    """A publish whose message is in Redis, and whose document waits until it may be written."""

    publishing: asyncio.Task[PublishResult]
    may_be_written: asyncio.Event
    is_written: asyncio.Event


async def _late_publish(broker: Broker, body: bytes, monkeypatch: pytest.MonkeyPatch) -> _Late:
    is_under_way, may_be_written, is_written = asyncio.Event(), asyncio.Event(), asyncio.Event()
    insert = Archive.insert

    async def slow_insert(self: Archive, queue: str, documents: Sequence[Any]) -> None:
        is_late = [document["content"] for document in documents] == [body.decode()]
        if is_late:
            is_under_way.set()
            await may_be_written.wait()
        await insert(self, queue, documents)
        if is_late:
            is_written.set()

    monkeypatch.setattr(Archive, "insert", slow_insert)
    publishing = asyncio.create_task(broker.publish("jobs", [body]))
    await is_under_way.wait()
    return _Late(publishing=publishing, may_be_written=may_be_written, is_written=is_written)


@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["missing", "rebuilt"])
async def test_a_repeated_publish_is_not_answered_with_a_message_that_is_lost_meanwhile(
    broker: Broker,
    addresses: Addresses,
    database: Any,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
    is_rebuilt: bool,
) -> None:
    # Given a message that only Redis has, because its server died before it was archived
    other = await open_server()
    message = NewMessage(body=b"once more", dedup_key="k")
    await broker.publish("jobs", [b"a"])
    (first,) = await broker.publish("jobs", [message])
    await database["jobs"].delete_one({"_id": first.id})
    missing = Archive.missing

    async def wiped_meanwhile(self: Archive, queue: str, ids: Iterable[str]) -> list[str]:
        found = await missing(self, queue, ids)
        await addresses.wipe_redis()
        if is_rebuilt:
            await other.recover()
        return found

    # When Redis is wiped while the publish is repeated
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "missing", wiped_meanwhile)
        with pytest.raises(StoreUnavailable):
            await broker.publish("jobs", [message])
    # Then it can be repeated once more, and is stored
    await broker.publish("jobs", [message])
    assert [m.body for m in await broker.receive("jobs", limit=9)] == [b"a", b"once more"]


async def test_one_that_redis_lost_by_itself_is_put_back_even_if_nothing_else_happens(
    store: ArchivedStore, broker: Broker, addresses: Addresses
) -> None:
    # Given a Redis that comes back, or is replaced, without the newest message
    lost = await _lose_one(broker, addresses)
    # Then the server that has answered for it notices, as part of its regular work
    await store.check_answered()
    assert [m.id for m in await broker.read("jobs", start=1)] == [lost]


async def test_one_that_redis_lost_is_put_back_even_if_another_server_is_checking_just_then(
    store: ArchivedStore, broker: Broker, addresses: Addresses
) -> None:
    # Given a message that Redis lost after another server had begun to check what is lost
    lost = await _lose_one(broker, addresses)
    async with Redis.from_url(redis_url()) as redis:
        await redis.set(f"{addresses.name}:lock:rebuild", "another server", px=500)
    # When the server that has answered for it notices
    await store.check_answered()
    # Then it does not rely on the other one
    assert [m.id for m in await broker.read("jobs", start=1)] == [lost]


async def test_what_is_acked_as_a_queue_is_about_to_be_rebuilt_stays_acked(
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a queue that has lost a message, and another server that has received an earlier one
    other = Broker(await open_server())
    lost = await _lose_one(broker, addresses)
    (given,) = await other.receive("jobs")
    drop = RedisStore.drop

    async def acked_first(self: RedisStore, queue: str) -> QueueState | None:
        await other.ack(queue, [given])
        return await drop(self, queue)

    # When it is acked at the last moment before the queue is rebuilt
    monkeypatch.setattr(RedisStore, "drop", acked_first)
    await store.check_answered()
    # Then it does not come again
    assert [m.id for m in await broker.receive("jobs", limit=9)] == [lost]


async def test_a_queue_that_another_server_has_just_rebuilt_is_found(
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a server that does not find a queue, since another one has dropped it to rebuild it
    other = Broker(await open_server())
    lost = await _lose_one(broker, addresses)
    is_looking, is_rebuilt = asyncio.Event(), asyncio.Event()
    reading: list[asyncio.Task[list[Message]]] = []
    drop, is_complete = RedisStore.drop, RedisStore.is_complete

    async def drop_and_read(self: RedisStore, queue: str) -> QueueState | None:
        state = await drop(self, queue)
        reading.append(asyncio.create_task(other.read(queue)))
        await is_looking.wait()
        return state

    async def slow_is_complete(self: RedisStore, archive: str) -> bool:
        if asyncio.current_task() in reading:
            is_looking.set()
            await is_rebuilt.wait()
        return await is_complete(self, archive)

    monkeypatch.setattr(RedisStore, "drop", drop_and_read)
    monkeypatch.setattr(RedisStore, "is_complete", slow_is_complete)
    # When it asks whether anything is being rebuilt only after that is done
    await store.check_answered()
    is_rebuilt.set()
    # Then it looks once more
    (found,) = reading
    assert [m.id for m in await found][1:] == [lost]


async def _lose_one(broker: Broker, addresses: Addresses) -> str:
    """Publish two messages, of which Redis loses the second. Returns its id."""
    await broker.publish("jobs", [b"a"])
    async with redis_rolled_back(addresses):
        (lost,) = await broker.publish("jobs", [b"lost"])
    assert [m.body for m in await broker.read("jobs")] == [b"a"]
    return lost.id

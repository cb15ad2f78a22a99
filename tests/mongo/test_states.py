"""The state of a queue in MongoDB: what a change writes, and records of other versions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import StorageError
from penstock.storage.archiving import QueueState
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.connection import Connection
from penstock.storage.mongo.store import ArchivedStore
from tests.mongo.conftest import Addresses, Open, redis_rolled_back


async def test_a_change_of_one_subscription_writes_no_other(broker: Broker, database: Any) -> None:
    # Given a subscription whose part of the record shows whether it was written again
    queues = database["penstock.queues"]
    await broker.create_subscription("jobs", "other")
    await queues.update_one({"_id": "jobs"}, {"$set": {"readers.other": b"as it was"}})
    # When others are created, altered, moved and deleted
    await broker.create_subscription("jobs", "one")
    await broker.alter_subscription("jobs", "one", paused=True)
    await broker.seek("jobs", 0, "one")
    await broker.create_subscription("jobs", "two")
    await broker.delete_subscription("jobs", "one")
    # Then that part was not
    document = await queues.find_one({"_id": "jobs"})
    assert set(document["readers"]) == {"default", "other", "two"}
    assert document["readers"]["other"] == b"as it was"


async def test_what_a_change_leaves_alone_comes_back_as_well(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    # Given subscriptions with progress, whose names look like numbers
    for name in ("0", "1", "2"):
        await broker.create_subscription("jobs", name)
    await broker.publish("jobs", [b"a", b"b", b"c"])
    for name in ("0", "1", "2"):
        await broker.ack("jobs", await broker.receive("jobs", subscription=name), name)
    await store.copy_changed()
    # When one is altered, one deleted, and one created, and then Redis is lost
    await broker.alter_subscription("jobs", "0", max_in_flight=1)
    await broker.delete_subscription("jobs", "1")
    await broker.create_subscription("jobs", "3", start=2)
    await addresses.wipe_redis()
    other = Broker(await open_server())
    # Then all are as they were
    found = (await other.queue_stats("jobs")).subscriptions
    assert [one.name for one in found] == ["default", "0", "2", "3"]
    given = {
        one.name: [m.body for m in await other.receive("jobs", subscription=one.name, limit=9)]
        for one in found
    }
    assert given == {"default": [b"a", b"b", b"c"], "0": [b"b"], "2": [b"b", b"c"], "3": [b"c"]}


async def test_a_record_that_another_server_has_written_meanwhile_is_replaced(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    # Given two servers that change subscriptions in turn
    other = Broker(await open_server())
    await broker.create_subscription("jobs", "one")
    await other.create_subscription("jobs", "two")
    await broker.alter_subscription("jobs", "one", paused=True)
    await other.delete_subscription("jobs", "one")
    await broker.create_subscription("jobs", "three")
    # Then the record has what all of that has led to
    await addresses.wipe_redis()
    found = (await other.queue_stats("jobs")).subscriptions
    assert [one.name for one in found] == ["default", "two", "three"]


async def test_a_subscription_that_is_back_since_redis_has_old_data_is_recorded(
    broker: Broker, addresses: Addresses
) -> None:
    # Given a subscription that was deleted, which Redis has lost
    await broker.create_subscription("jobs", "one")
    await broker.create_subscription("jobs", "two")
    async with redis_rolled_back(addresses):
        await broker.delete_subscription("jobs", "one")
    # When another one is altered
    await broker.alter_subscription("jobs", "two", paused=True)
    # Then the record has both
    await addresses.wipe_redis()
    found = (await broker.queue_stats("jobs")).subscriptions
    assert [one.name for one in found] == ["default", "one", "two"]


async def test_a_record_of_the_first_format_is_read_and_then_written_as_the_current_one(
    broker: Broker, addresses: Addresses, database: Any, open_server: Open
) -> None:
    # Given a record as it was first: the state as a whole
    await broker.create_subscription("jobs", "reds", filter='topic == "red"')
    await broker.publish("jobs", [b"a", NewMessage(body=b"b", topic="red")])
    await broker.close()
    queues = database["penstock.queues"]
    archive = Archive(Connection(addresses.mongo))
    state = await archive.state("jobs")
    await archive.close()
    first = {
        "$set": {"state": msgspec.msgpack.encode(state)},
        "$unset": {"format": "", "readers": ""},
    }
    await queues.update_one({"_id": "jobs"}, first)
    # When Redis is lost, and a subscription created
    await addresses.wipe_redis()
    other = Broker(await open_server())
    await other.create_subscription("jobs", "new")
    # Then everything is there, and the record is as it is now
    given = await other.receive("jobs", subscription="reds", limit=9)
    assert [m.body for m in given] == [b"b"]
    document = await queues.find_one({"_id": "jobs"})
    assert document["format"] == 2
    assert set(document["readers"]) == {"default", "reds", "new"}
    assert msgspec.msgpack.decode(document["state"], type=QueueState).readers == []


async def test_a_record_of_a_later_version_is_refused(
    broker: Broker, database: Any, open_server: Open
) -> None:
    await broker.close()
    await database["penstock.queues"].update_one({"_id": "jobs"}, {"$set": {"format": 3}})
    with pytest.raises(StorageError, match="format 3"):
        await open_server()


async def test_a_queue_whose_record_cannot_be_written_does_not_hold_up_the_others(
    broker: Broker, store: ArchivedStore, database: Any
) -> None:
    # Given a queue whose record a later version has written
    await broker.create_queue("a")
    for queue in ("a", "jobs"):
        await broker.publish(queue, [b"x"])
    later = {"$set": {"format": 3, "at": 1}}
    await database["penstock.queues"].update_one({"_id": "a"}, later)
    # When messages are consumed
    for queue in ("a", "jobs"):
        await broker.ack(queue, await broker.receive(queue))
    # Then the other queue's marks are written, and the failure is told
    with pytest.raises(StorageError, match="format 3"):
        await store.copy_changed()
    assert (await database["jobs"].find_one({}))["consumed"]
    await broker.publish("jobs", [b"x"])
    await broker.ack("jobs", await broker.receive("jobs"))
    with pytest.raises(StorageError, match="format 3"):
        await store.copy_all()
    assert await database["jobs"].count_documents({"consumed": True}) == 2


async def test_a_record_that_is_too_large_is_refused_with_an_error_of_our_own(
    broker: Broker, store: ArchivedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given as many gaps as one document cannot have
    monkeypatch.setattr("penstock.storage.mongo.archive._encode", lambda _: b"x" * 17_000_000)
    await broker.publish("jobs", [b"x"])
    with pytest.raises(StorageError, match="MongoDB cannot store a document"):
        await store.copy_all()

"""What is in MongoDB, as an operator sees it with mongosh."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import StoreUnavailable
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.store import ArchivedStore
from tests.mongo.conftest import Open


async def test_a_publish_is_answered_when_its_documents_are_there(
    broker: Broker, database: Any
) -> None:
    result = await broker.publish("jobs", [b"text", NewMessage(body=b"\xff", topic="t")])
    assert result.durability == "replicated"
    text, other = await database["jobs"].find().sort("index", 1).to_list()
    assert text["_id"] == result[0].id
    assert text["content"] == "text"
    assert text["consumerGroup"] == "jobs"
    assert (text["consumed"], text["deliveryCount"], text["index"]) == (False, 0, 0)
    assert abs(text["createdAt"].replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(hours=1)  # noqa: TID251
    assert (other["content"], other["index"]) == (b"\xff", 1)


async def test_with_async_a_publish_is_answered_before_and_says_so(
    open_server: Open, database: Any
) -> None:
    store = await open_server("async")
    broker = Broker(store)
    await broker.create_queue("jobs")
    result = await broker.publish("jobs", [b"a"])
    assert result.durability == store.durability == "memory"
    # A clean stop loses nothing
    await broker.close()
    assert await database["jobs"].count_documents({}) == 1


async def test_consumed_marks_and_delivery_counts_follow_in_bulk(
    broker: Broker, store: ArchivedStore, database: Any
) -> None:
    await broker.publish("jobs", [b"%d" % n for n in range(5)])
    given = await broker.receive("jobs", limit=4)
    await broker.nack("jobs", [given[3]], delay_seconds=0)
    await broker.ack("jobs", [*given[:2], *await broker.receive("jobs")])
    await store.copy_changed()
    found = await database["jobs"].find().sort("index", 1).to_list()
    assert [one["consumed"] for one in found] == [True, True, False, True, False]
    assert [one["deliveryCount"] for one in found] == [1, 1, 1, 2, 0]


async def test_marks_are_not_lost_by_a_clean_stop(broker: Broker, database: Any) -> None:
    await broker.publish("jobs", [b"a"])
    await broker.ack("jobs", await broker.receive("jobs"))
    await broker.close()
    assert await database["jobs"].count_documents({"consumed": True}) == 1


async def test_marks_that_a_server_did_not_live_to_write_are_written_by_another(
    broker: Broker, open_server: Open, database: Any
) -> None:
    # Given a server that settles, and is gone before it has told MongoDB
    await broker.publish("jobs", [b"a"])
    await broker.ack("jobs", await broker.receive("jobs"))
    # When another one looks after all queues
    other = await open_server()
    await other.copy_all()
    assert await database["jobs"].count_documents({"consumed": True}) == 1


async def test_a_mark_that_came_before_its_document_is_made_again(
    broker: Broker, store: ArchivedStore, database: Any
) -> None:
    # Given a message that was consumed, and whose document came late
    await broker.publish("jobs", [b"a"])
    await broker.ack("jobs", await broker.receive("jobs"))
    await store.copy_changed()
    await database["jobs"].update_many({}, {"$set": {"consumed": False, "done": False}})
    await store.copy_all()
    assert await database["jobs"].count_documents({"consumed": True, "done": True}) == 1


async def test_a_seek_back_takes_the_marks_back(
    broker: Broker, store: ArchivedStore, database: Any
) -> None:
    await broker.publish("jobs", [b"a", b"b"])
    await broker.ack("jobs", await broker.receive("jobs", limit=2))
    await store.copy_changed()
    await broker.seek("jobs", 1)
    found = await database["jobs"].find().sort("index", 1).to_list()
    assert [one["consumed"] for one in found] == [True, False]


async def test_a_dead_letter_is_a_document_until_it_is_replayed(
    broker: Broker, store: ArchivedStore, database: Any
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    (sent,) = await broker.publish("jobs", [b"bad"])
    await broker.nack("jobs", await broker.receive("jobs"), reason="broken")
    await store.copy_changed()
    (letter,) = await database["jobs-dlq"].find().to_list()
    assert (letter["id"], letter["content"], letter["consumerGroup"]) == (sent.id, "bad", "jobs")
    assert (letter["deliveryCount"], letter["dlqReason"]) == (1, "broken")
    assert letter["failedAt"] >= letter["createdAt"]
    # Its message is consumed, and yet must not go
    assert await database["jobs"].count_documents({"consumed": True, "done": False}) == 1
    await broker.replay("jobs")
    await store.copy_changed()
    assert await database["jobs-dlq"].count_documents({}) == 0
    assert await database["jobs"].count_documents({"consumed": False}) == 1


async def _ttl(collection: Any) -> list[tuple[list[str], int, dict[str, Any] | None]]:
    return [
        (list(index["key"]), index["expireAfterSeconds"], index.get("partialFilterExpression"))
        for index in await (await collection.list_indexes()).to_list()
        if "expireAfterSeconds" in index
    ]


async def test_a_replayed_letter_that_a_server_did_not_live_to_remove_is_removed_by_another(
    broker: Broker, store: ArchivedStore, open_server: Open, database: Any
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"a"])
    await broker.nack("jobs", await broker.receive("jobs"))
    await store.copy_changed()
    await broker.replay("jobs")

    async def fail(*arguments: object) -> None:
        raise StoreUnavailable("it has died")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "remove", fail)
        with pytest.raises(StoreUnavailable):
            await store.copy_all()
    assert await database["jobs-dlq"].count_documents({}) == 1
    await (await open_server()).copy_all()
    assert await database["jobs-dlq"].count_documents({}) == 0


async def test_the_ttl_index_follows_the_retention_of_the_queue(
    broker: Broker, database: Any
) -> None:
    assert await _ttl(database["jobs"]) == [(["createdAt"], 86400, {"done": True})]
    await broker.alter_queue("jobs", retain_unsettled=False)
    assert await _ttl(database["jobs"]) == [(["createdAt"], 86400, None)]
    await broker.alter_queue("jobs", retention_seconds=60)
    assert await _ttl(database["jobs"]) == [(["createdAt"], 60, None)]
    await broker.alter_queue("jobs", retention_seconds=None)
    assert await _ttl(database["jobs"]) == []


async def test_a_queue_that_is_made_anew_gets_its_indexes_at_every_server(
    broker: Broker, open_server: Open, database: Any
) -> None:
    # Given a server that has seen the indexes of a queue, and another one that deletes it
    other = Broker(await open_server())
    for queue in ("jobs", "jobs-dlq"):
        await other.alter_queue(queue, max_bytes=1000)
    await other.publish("jobs", [b"a"])
    before = await database["jobs"].index_information()
    await broker.delete_queue("jobs")
    # When the first one makes it anew
    await other.create_queue("jobs")
    await other.publish("jobs", [b"a"])
    # Then no index is missing
    assert await database["jobs"].index_information() == before


async def test_a_server_that_starts_leaves_a_ttl_index_that_is_right_as_it_is(
    broker: Broker, open_server: Open, database: Any
) -> None:
    # Given an index that was made after it
    await database["jobs"].create_index("content")
    before = await database["jobs"].index_information()
    # When another server writes of the queue for the first time
    other = await open_server()
    await Broker(other).publish("jobs", [b"a"])
    await other.copy_all()
    # Then the TTL index was not made anew, which takes long on a large collection
    assert list(await database["jobs"].index_information()) == list(before)


async def test_dead_letters_have_a_ttl_of_their_own(
    broker: Broker, store: ArchivedStore, database: Any
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"bad"])
    await broker.nack("jobs", await broker.receive("jobs"))
    await broker.alter_queue("jobs-dlq", message_ttl_seconds=3600)
    assert await _ttl(database["jobs-dlq"]) == [(["failedAt"], 3600, None)]


async def test_a_sweep_removes_what_is_too_old_where_the_server_does_not(
    broker: Broker, store: ArchivedStore, database: Any
) -> None:
    # Given two old messages, one of them unsettled, and a new one
    await broker.publish("jobs", [b"settled", b"unsettled", b"new"])
    given = await broker.receive("jobs", limit=3)
    await broker.ack("jobs", [given[0], given[2]])
    await store.copy_changed()
    old = datetime(2020, 1, 1, tzinfo=UTC)
    await database["jobs"].update_many({"index": {"$lt": 2}}, {"$set": {"createdAt": old}})
    await store.sweep()
    found = await database["jobs"].find().sort("index", 1).to_list()
    assert [one["content"] for one in found] == ["unsettled", "new"]


async def test_view_shows_consumed_messages_that_redis_has_let_go_of(
    broker: Broker, store: ArchivedStore
) -> None:
    await broker.publish("jobs", [b"%d" % n for n in range(4)])
    await broker.ack("jobs", await broker.receive("jobs", limit=3))
    # When Redis keeps but the newest two
    await broker.alter_queue("jobs", retention_messages=2)
    await store.tick()
    assert [m.index for m in await broker.read("jobs")] == [2, 3]
    # Then the others come from MongoDB, each once
    consumed = await broker.view("jobs", settled=True)
    assert [(v.index, v.body, v.deliveries) for v in consumed] == [
        (0, b"0", 1),
        (1, b"1", 1),
        (2, b"2", 1),
    ]
    everything = await broker.view("jobs")
    assert [(v.index, v.is_settled) for v in everything] == [
        (0, True),
        (1, True),
        (2, True),
        (3, False),
    ]
    assert [v.index for v in await broker.view("jobs", settled=False)] == [3]
    assert [v.index for v in await broker.view("jobs", limit=2)] == [0, 1]


async def test_what_was_in_redis_before_there_was_an_archive_is_archived_at_start(
    broker: Broker, store: ArchivedStore, database: Any, open_server: Open
) -> None:
    await broker.publish("jobs", [b"a", b"b"])
    for name in await database.list_collection_names():
        await database.drop_collection(name)
    await open_server()
    assert await database["jobs"].count_documents({}) == 2
    assert await database["penstock.queues"].count_documents({"_id": "jobs"}) == 1

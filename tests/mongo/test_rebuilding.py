"""Redis loses everything; MongoDB has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.message import Message, NewMessage
from penstock.core.settling import Outcome
from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage.archiving import QueueState
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.store import ArchivedStore
from penstock.storage.redis.store import RedisStore
from tests.mongo.conftest import Addresses, Open, redis_rolled_back
from tests.redis_server import redis_url


async def test_every_accepted_message_comes_back_with_its_index_id_and_body(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    # Given messages of all kinds
    plain = await broker.publish("jobs", [b"text", b"\xff\x00 bytes", b""])
    odd = await broker.publish(
        "jobs", [NewMessage(body=b"urgent", priority=7, attributes={"a": "b"}, topic="t")]
    )
    before = await broker.read("jobs")
    # When Redis is wiped, and a server started
    await addresses.wipe_redis()
    other = Broker(await open_server())
    # Then they are all there, and the urgent one is first
    assert await other.read("jobs") == before
    assert [m.id for m in before] == [*(p.id for p in plain), *(p.id for p in odd)]
    given = await other.receive("jobs", limit=9)
    assert [(d.index, d.deliveries) for d in given] == [(3, 1), (0, 1), (1, 1), (2, 1)]
    # And the next one gets the next index
    assert [p.index for p in await other.publish("jobs", [b"next"])] == [4]


async def test_a_server_that_many_ask_at_once_rebuilds_once(
    broker: Broker, addresses: Addresses
) -> None:
    # Given more messages than one step of the rebuilding takes
    count = 2500
    await broker.publish("jobs", [b"x"] * count)
    await addresses.wipe_redis()
    # When many who run into the loss begin to rebuild
    given = await asyncio.gather(*(broker.receive("jobs", limit=count // 10) for _ in range(10)))
    # Then each gets its share, and nobody an error
    indexes = sorted(delivery.index for part in given for delivery in part)
    assert indexes == list(range(count))


async def test_what_was_settled_is_not_delivered_again_and_what_was_not_keeps_its_count(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    await broker.publish("jobs", [b"acked", b"nacked", b"in flight", b"waits", b"new"])
    acked, nacked, in_flight, waits = await broker.receive("jobs", limit=4)
    await broker.ack("jobs", [acked])
    await broker.nack("jobs", [nacked], delay_seconds=0)
    await broker.nack("jobs", [waits], delay_seconds=600)
    await store.copy_changed()
    await addresses.wipe_redis()
    other = Broker(await open_server())
    # What was in flight when Redis went may still be settled by who has it
    assert await other.ack("jobs", [in_flight.receipt]) == [Outcome.DONE]
    given = await other.receive("jobs", limit=9)
    assert [(d.body, d.deliveries) for d in given] == [(b"nacked", 2), (b"new", 1)]
    stats = await other.queue_stats("jobs")
    assert stats.subscriptions[0].delayed == 1


async def test_receipts_of_deliveries_that_no_record_has_do_not_fit_new_ones(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    # Given a delivery that MongoDB was not told of
    await broker.publish("jobs", [b"a"])
    (lost,) = await broker.receive("jobs")
    await addresses.wipe_redis()
    # When another consumer gets the message
    other = Broker(await open_server())
    (given,) = await other.receive("jobs")
    # Then the first one cannot settle it
    assert await other.ack("jobs", [lost.receipt]) == [Outcome.NOT_LEASED]
    assert await other.ack("jobs", [given.receipt]) == [Outcome.DONE]


async def test_subscriptions_with_filters_and_dependencies_come_back(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    await broker.create_subscription("jobs", "reds", filter='topic == "red"')
    await broker.create_subscription("jobs", "after", after=["default"])
    await broker.publish(
        "jobs", [NewMessage(body=b"0", topic="red"), b"1", NewMessage(body=b"2", topic="red")]
    )
    first, _ = await broker.receive("jobs", limit=2)
    await broker.ack("jobs", [first])
    await store.copy_changed()
    # One more comes after the last copy
    await broker.publish("jobs", [NewMessage(body=b"3", topic="red")])
    await addresses.wipe_redis()
    other = Broker(await open_server())
    reds = await other.receive("jobs", subscription="reds", limit=9)
    assert [d.body for d in reds] == [b"0", b"2", b"3"]
    after = await other.receive("jobs", subscription="after", limit=9)
    assert [d.body for d in after] == [b"0"]
    assert await other.held("jobs", "after") == [1, 2, 3]


async def test_groups_stay_in_order(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    await broker.create_queue("fifo", fifo=True)
    await broker.publish(
        "fifo", [NewMessage(body=b"%d" % n, group_key="ab"[n % 2]) for n in range(6)]
    )
    given = await broker.receive("fifo", limit=9)
    assert [d.index for d in given] == [0, 1]
    await broker.ack("fifo", [given[1]])
    await store.copy_changed()
    await addresses.wipe_redis()
    other = Broker(await open_server())
    order = []
    while given := await other.receive("fifo", limit=9):
        order += [d.index for d in given]
        await other.ack("fifo", given)
    assert order == [0, 3, 2, 5, 4]


async def test_dead_letters_come_back_and_can_be_replayed(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"bad", b"good", b"worse"])
    given = await broker.receive("jobs", limit=3)
    await broker.nack("jobs", [given[0], given[2]], reason="no")
    await broker.ack("jobs", [given[1]])
    await broker.discard("jobs", [given[2].id])
    await store.copy_changed()
    await addresses.wipe_redis()
    other = Broker(await open_server())
    (letter,) = await other.dead_letters("jobs")
    assert letter.dead_letter is not None
    assert (letter.body, letter.dead_letter.reason, letter.id) == (b"bad", "no", given[0].id)
    assert await other.receive("jobs") == []
    assert await other.replay("jobs") == 1
    assert [d.body for d in await other.receive("jobs", limit=9)] == [b"bad"]


async def test_a_dead_letter_that_only_half_of_the_record_has_makes_room_for_another(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"a", b"b"])
    await store.copy_changed()
    # Given a server that dies as it has put a dead letter into the record, but not what it is of
    await broker.nack("jobs", await broker.receive("jobs"))
    await _fail_to_save(store)
    await addresses.wipe_redis()
    second = await open_server()
    # When another message is the first dead letter now
    given = await Broker(second).receive("jobs", limit=2)
    await Broker(second).nack("jobs", [given[1]], reason="no")
    # Then the record has that one
    await second.copy_all()
    await Broker(second).create_subscription("jobs", "more")
    await addresses.wipe_redis()
    (letter,) = await Broker(await open_server()).dead_letters("jobs")
    assert letter.dead_letter is not None
    assert (letter.body, letter.dead_letter.reason) == (b"b", "no")


async def test_a_dead_letter_of_the_same_message_has_the_reason_that_it_failed_for_at_last(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"a"])
    await store.copy_changed()
    await broker.nack("jobs", await broker.receive("jobs"), reason="first")
    await _fail_to_save(store)
    await addresses.wipe_redis()
    second = await open_server()
    await Broker(second).nack("jobs", await Broker(second).receive("jobs"), reason="last")
    await second.copy_all()
    await addresses.wipe_redis()
    (letter,) = await Broker(await open_server()).dead_letters("jobs")
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason == "last"


async def test_a_dead_letter_whose_replay_no_record_has_comes_back(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open, database: Any
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"a"])
    await broker.nack("jobs", await broker.receive("jobs"))
    await store.copy_changed()
    # Given a server that dies as it records that the letter is replayed
    await broker.replay("jobs")
    await _fail_to_save(store)
    await addresses.wipe_redis()
    # Then the letter is there again, and so is its message once it is replayed
    second = await open_server()
    other = Broker(second)
    (letter,) = await other.dead_letters("jobs")
    assert letter.body == b"a"
    assert await other.replay("jobs") == 1
    assert [d.body for d in await other.receive("jobs")] == [b"a"]
    await second.copy_changed()
    assert await database["jobs-dlq"].count_documents({}) == 0


async def _fail_to_save(store: ArchivedStore) -> None:
    """The last step of a copy fails, and all others are made."""

    async def fail(*arguments: object) -> None:
        raise StoreUnavailable("it has died")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "save", fail)
        with pytest.raises(StoreUnavailable):
            await store.copy_all()


@pytest.mark.parametrize("filter", [None, 'topic != "x"'])
async def test_what_was_replayed_in_front_of_the_start_is_counted(
    filter: str | None,
    broker: Broker,
    store: ArchivedStore,
    addresses: Addresses,
    open_server: Open,
) -> None:
    await broker.create_subscription("jobs", "one", filter=filter, max_deliveries=1)
    await broker.publish("jobs", [b"bad", b"b", b"c", b"d"])
    await broker.nack("jobs", await broker.receive("jobs", subscription="one"), "one")
    await broker.seek("jobs", 2, "one")
    await broker.replay("jobs")
    assert (await broker.subscription_stats("jobs", "one")).ready == 3
    await store.copy_changed()
    await addresses.wipe_redis()
    other = Broker(await open_server())
    assert (await other.subscription_stats("jobs", "one")).ready == 3
    given = await other.receive("jobs", subscription="one", limit=9)
    assert [d.body for d in given] == [b"bad", b"c", b"d"]
    await other.ack("jobs", given, "one")
    assert (await other.subscription_stats("jobs", "one")).ready == 0


async def test_what_is_delivered_again_is_not_marked_as_consumed(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open, database: Any
) -> None:
    await broker.publish("jobs", [b"a", b"b"])
    await store.copy_changed()
    await broker.publish("jobs", [b"c"])
    # Given a server that dies as it records acks: there are marks, but no state
    given = await broker.receive("jobs", limit=3)
    await broker.ack("jobs", given[1:])
    await _fail_to_save(store)
    marked = {"consumed": True, "done": True}
    assert await database["jobs"].count_documents(marked) == 2
    await addresses.wipe_redis()
    # When the messages are ready again
    other = Broker(await open_server())
    assert len(await other.receive("jobs", limit=9)) == 3
    # Then nobody sees them as consumed, and no index removes them
    assert await database["jobs"].count_documents(marked) == 0
    assert await other.view("jobs", settled=True) == []


async def test_what_a_filter_kept_out_is_counted_as_before(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open, database: Any
) -> None:
    await broker.create_subscription("jobs", "reds", filter='topic == "red"')
    await broker.publish("jobs", [b"a", *(NewMessage(body=b"r", topic="red") for _ in range(4))])
    for name in ("default", "reds"):
        await broker.ack("jobs", await broker.receive("jobs", subscription=name, limit=3), name)
    await store.copy_changed()
    # Given a record whose oldest messages have expired, and a message that is newer than its state
    await database["jobs"].delete_many({"done": True})
    await broker.publish("jobs", [NewMessage(body=b"r", topic="red"), b"b"])
    await addresses.wipe_redis()
    other = Broker(await open_server())
    reds = await other.subscription_stats("jobs", "reds")
    assert (reds.filtered, reds.acked, reds.ready) == (2, 3, 2)


async def test_dead_letters_fit_their_queue_even_if_a_rebuild_breaks_off(
    broker: Broker, store: ArchivedStore, addresses: Addresses
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"a"])
    await broker.nack("jobs", await broker.receive("jobs"))
    await store.copy_changed()
    # Given a queue that has lost a message, and a replay that no record has
    async with redis_rolled_back(addresses):
        await broker.publish("jobs", [b"lost"])
    await broker.replay("jobs")
    # When the rebuild breaks off after the dead letters, and is made by another server
    restore = RedisStore.restore

    async def fail(hot: RedisStore, state: QueueState, *arguments: Any) -> bool:
        if state.name == "jobs":
            raise StoreUnavailable("it has died")
        return await restore(hot, state, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RedisStore, "restore", fail)
        await store.recover()
    await store.recover()
    # Then the message is what the record says, and can be had
    assert [letter.body for letter in await broker.dead_letters("jobs")] == [b"a"]
    assert await broker.replay("jobs") == 1
    assert [d.body for d in await broker.receive("jobs", limit=9)] == [b"a", b"lost"]


async def test_a_dead_letter_that_is_newer_than_the_record_is_delivered_again(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"old", b"new", b"acked"])
    old, new, acked = await broker.receive("jobs", limit=3)
    await broker.nack("jobs", [old])
    await store.copy_changed()
    # Given a queue that has lost a message, and one that has failed since the last copy
    async with redis_rolled_back(addresses):
        await broker.publish("jobs", [b"lost"])
    await broker.ack("jobs", [acked])
    await broker.nack("jobs", [new])
    await store.recover()
    # Then that one comes again, while the other is a dead letter, and the acked one stays acked
    assert [letter.body for letter in await broker.dead_letters("jobs")] == [b"old"]
    assert [d.body for d in await broker.receive("jobs", limit=9)] == [b"new", b"lost"]
    assert await broker.replay("jobs") == 1
    assert [d.body for d in await broker.receive("jobs", limit=9)] == [b"old"]
    # And so it is recorded
    await store.copy_changed()
    await addresses.wipe_redis()
    other = Broker(await open_server())
    assert sorted(d.body for d in await other.receive("jobs", limit=9)) == [b"lost", b"new", b"old"]


async def test_delays_expiries_and_dedup_keys_come_back(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    (now,) = await broker.publish("jobs", [NewMessage(body=b"now", dedup_key="k")])
    created = (await broker.read("jobs"))[0].created_at
    later = created + timedelta(hours=1)
    await broker.publish("jobs", [NewMessage(body=b"later", not_before=later)])
    await broker.publish(
        "jobs", [NewMessage(body=b"expired", expires_at=created - timedelta(hours=1))]
    )
    await addresses.wipe_redis()
    other = Broker(await open_server())
    assert [d.body for d in await other.receive("jobs", limit=9)] == [b"now"]
    (again,) = await other.publish("jobs", [NewMessage(body=b"again", dedup_key="k")])
    assert (again.duplicate, again.id) == (True, now.id)
    stats = await other.queue_stats("jobs")
    assert (stats.subscriptions[0].delayed, stats.subscriptions[0].expired) == (1, 1)


async def test_a_server_that_runs_while_redis_is_wiped_rebuilds_it_when_asked_for_anything(
    broker: Broker, addresses: Addresses
) -> None:
    await broker.publish("jobs", [b"a"])
    await addresses.wipe_redis()
    assert [p.index for p in await broker.publish("jobs", [b"b"])] == [1]
    assert [d.body for d in await broker.receive("jobs", limit=9)] == [b"a", b"b"]
    with pytest.raises(QueueNotFound):
        await broker.read("none")


async def test_a_deleted_queue_stays_deleted(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    await broker.publish("jobs", [b"a"])
    await broker.delete_queue("jobs")
    await broker.create_queue("other")
    await addresses.wipe_redis()
    other = Broker(await open_server())
    assert [stats.name for stats in await other.stats()] == ["other"]


async def test_a_queue_made_anew_does_not_get_the_messages_of_the_old_one(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    await broker.publish("jobs", [b"old", b"older"])
    await broker.delete_queue("jobs")
    await broker.create_queue("jobs")
    await broker.publish("jobs", [b"new"])
    await addresses.wipe_redis()
    other = Broker(await open_server())
    assert [m.body for m in await other.read("jobs")] == [b"new"]


async def test_purged_messages_do_not_come_back(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    await broker.publish("jobs", [b"a", b"b"])
    await broker.purge_queue("jobs")
    await broker.publish("jobs", [b"c"])
    await addresses.wipe_redis()
    other = Broker(await open_server())
    assert [(d.index, d.body) for d in await other.receive("jobs", limit=9)] == [(2, b"c")]


@pytest.mark.parametrize("at", [0, 1, 2], ids=["first part", "second part", "end"])
async def test_a_redis_that_is_wiped_while_it_is_rebuilt_is_rebuilt_by_one_server_alone(
    at: int,
    store: ArchivedStore,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given more messages than are restored at a time
    broker = Broker(store)
    await broker.create_queue("jobs")
    sent = [p.id for p in await broker.publish("jobs", [b"%d" % n for n in range(1500)])]
    other = await open_server()
    messages = Archive.messages

    async def messages_and_wipe(self: Archive, *arguments: Any) -> AsyncIterator[list[Message]]:
        parts = [part async for part in messages(self, *arguments)]
        for number, part in enumerate([*parts, None]):
            if number == at:
                monkeypatch.undo()
                # When Redis is wiped once more, and another server begins to rebuild it
                await addresses.wipe_redis()
                rebuilding.append(asyncio.create_task(other.recover()))
                async with Redis.from_url(redis_url()) as redis:
                    while not await redis.exists(f"{addresses.name}:{{jobs}}"):  # noqa: ASYNC110
                        await asyncio.sleep(0)
            if part is not None:
                yield part

    rebuilding: list[asyncio.Task[Any]] = []
    monkeypatch.setattr(Archive, "messages", messages_and_wipe)
    await addresses.wipe_redis()
    await store.recover()
    await rebuilding[0]
    # Then nothing is missing
    assert [m.id for m in await Broker(other).read("jobs", limit=2000)] == sent
    given = await Broker(other).receive("jobs", limit=2000)
    assert [d.id for d in given] == sent


async def test_what_is_due_in_a_queue_waits_until_it_is_rebuilt(
    store: ArchivedStore, addresses: Addresses, open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given messages that retention keeps only because nobody has settled them
    broker = Broker(store)
    await broker.create_queue("jobs", retention_messages=1)
    sent = [p.id for p in await broker.publish("jobs", [b"a", b"b", b"c"])]
    other = await open_server()
    before = await broker.stats()
    messages = Archive.messages
    seen: list[Any] = []

    async def messages_and_tick(self: Archive, *arguments: Any) -> AsyncIterator[list[Message]]:
        async for part in messages(self, *arguments):
            yield part
        # When a server does its regular work while they are restored
        await other._hot.tick()
        seen.append(await Broker(other).stats())

    monkeypatch.setattr(Archive, "messages", messages_and_tick)
    await addresses.wipe_redis()
    await store.recover()
    # Then they are all there, and nobody has seen a part of them
    assert seen == [[]]
    assert [d.id for d in await broker.receive("jobs", limit=9)] == sent
    assert [one.messages for one in before] == [one.messages for one in await broker.stats()]

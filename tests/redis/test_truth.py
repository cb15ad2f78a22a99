"""What an operator sees with redis-cli is what there is."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import StorageError, StoreUnavailable
from penstock.storage.redis import overview
from penstock.storage.redis.store import RedisStore
from tests.contract.clock import ManualClock


async def group(redis: Redis, root: str, name: str = "default") -> dict[str, Any]:
    groups: Any = await redis.xinfo_groups(f"{root}:stream")
    return next(found for found in groups if found["name"] == name)


async def consumers(redis: Redis, root: str) -> dict[str, int]:
    """What each has pending, by the number of its process."""
    found: Any = await redis.xinfo_consumers(f"{root}:stream", "default")
    return {one["name"].rpartition("-")[2]: one["pending"] for one in found}


async def entries(redis: Redis, key: str, *bounds: int) -> list[tuple[str, dict[str, str]]]:
    found: Any = await redis.xrange(key, *bounds)
    return list(found)


async def pending(redis: Redis, root: str, name: str) -> list[tuple[str, int]]:
    """Id and count of deliveries."""
    found: Any = await redis.xpending_range(f"{root}:stream", name, "-", "+", 10)
    return [(one["message_id"], one["times_delivered"]) for one in found]


async def test_an_index_range_is_a_range_of_the_stream(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.publish("jobs", [b"a", b"b", b"c"])
    found = await entries(redis, f"{root}:stream", 0, 1)
    assert [(id, fields["b"]) for id, fields in found] == [("0-1", "a"), ("1-0", "b")]


async def test_a_subscription_is_a_consumer_group_with_its_lag_and_pending(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.create_subscription("jobs", "audit")
    await broker.publish("jobs", [b"%d" % n for n in range(10)])
    await broker.receive("jobs", limit=4)
    found = await group(redis, root)
    assert (found["pending"], found["lag"], found["last-delivered-id"]) == (4, 6, "3-0")
    found = await group(redis, root, "audit")
    assert (found["pending"], found["lag"], found["last-delivered-id"]) == (0, 10, "0-0")


async def test_an_ack_is_news_only_where_it_makes_room(
    broker: Broker, redis: Redis, root: str
) -> None:
    # Given somebody who hears all news of a queue with three messages, of which two may be given
    await broker.publish("jobs", [b"a", b"b", b"c"])
    await broker.alter_subscription("jobs", "default", max_in_flight=2)
    async with redis.pubsub(ignore_subscribe_messages=True) as news:
        await news.subscribe(f"{root}:news")
        await news.get_message(timeout=5)  # none: that it is subscribed

        async def told() -> list[str]:
            """Since the last time; what is published last is the end of it."""
            await redis.publish(f"{root}:news", "end")
            found = []
            while (message := await news.get_message(timeout=5)) and message["data"] != "end":
                found.append(message["data"])
            return found

        # When one of two is acked, there is room for the third
        first, second = await broker.receive("jobs", limit=2)
        await broker.ack("jobs", [first.receipt])
        assert await told() == ["*"]
        # When there was room before, nobody need look
        await broker.ack("jobs", [second.receipt])
        assert await told() == []


async def test_a_receive_whose_bound_is_far_off_is_one_flight(
    broker: Broker, redis: Redis, root: str
) -> None:
    for size in (3, 4):
        await broker.publish("jobs", [b"x" * 1000] * size)
    # All that lies ahead has no more bytes than this, so it goes the short way
    await broker.receive("jobs", limit=5, most_bytes=7000)
    assert await redis.zrange(f"{root}:s:default:flights", 0, -1) == ["0:5"]
    # And where it may have more, each message is looked at
    await broker.receive("jobs", limit=2, most_bytes=1500)
    assert await redis.zrange(f"{root}:s:default:leases", 0, -1) == ["5"]


async def test_an_ack_takes_a_message_out_of_the_pending_ones(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.publish("jobs", [b"a", b"b"])
    first, _ = await broker.receive("jobs", limit=2)
    await broker.ack("jobs", [first])
    assert await pending(redis, root, "default") == [("1-0", 1)]


@pytest.mark.parametrize("settings", [{}, {"filter": 'topic == "t"'}])
async def test_the_count_of_deliveries_is_that_of_the_group(
    broker: Broker, redis: Redis, root: str, settings: dict[str, Any]
) -> None:
    await broker.create_subscription("jobs", "audit", **settings)
    await broker.publish("jobs", [NewMessage(body=b"a", topic="t", priority=5)])
    for _ in range(3):
        (given,) = await broker.receive("jobs", subscription="audit")
        await broker.nack("jobs", [given], "audit")
    await broker.receive("jobs", subscription="audit")
    assert await pending(redis, root, "audit") == [("0-1", 4)]


async def test_a_dead_letter_is_an_entry_of_its_own_stream_that_says_why(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.publish("jobs", [b"ok", b"bad"])
    given = await broker.receive("jobs", limit=2)
    await broker.nack("jobs", given[1:], reason="broken")
    ((id, fields),) = await entries(redis, f"{root}-dlq:stream")
    assert id == "0-1"
    assert (fields["b"], fields["reason"], fields["index"]) == ("bad", "broken", "1")
    assert (fields["subscription"], fields["deliveries"]) == ("default", "1")
    assert (await group(redis, root))["pending"] == 1


async def test_what_was_skipped_or_acked_before_it_was_delivered_is_behind_the_group(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.publish("jobs", [b"%d" % n for n in range(5)])
    await broker.ack_up_to("jobs", 3)
    assert (await group(redis, root))["last-delivered-id"] == "2-0"
    await broker.seek("jobs", "latest")
    found = await group(redis, root)
    assert (found["lag"], found["last-delivered-id"]) == (0, "4-0")


async def test_a_plain_backlog_costs_nothing_but_its_entries(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.publish("jobs", [b"x"] * 1000)
    before = {key async for key in redis.scan_iter(match=f"{root}*")}
    assert before == {root, f"{root}:stream", f"{root}:s:default"}
    # And what was done with is one run, however much it is
    for _ in range(10):
        await broker.ack("jobs", await broker.receive("jobs", limit=100))
    assert await redis.zrange(f"{root}:s:default:settled", 0, -1, withscores=True) == [("1000", 0)]
    after = {key async for key in redis.scan_iter(match=f"{root}*")}
    assert after == before | {f"{root}:s:default:settled"}


async def test_an_entry_that_somebody_deleted_by_hand_holds_nothing_up(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.publish("jobs", [b"a", b"b", b"c"])
    await redis.xdel(f"{root}:stream", "1-0")
    given = await broker.receive("jobs", limit=9)
    assert [delivery.body for delivery in given] == [b"a", b"c"]
    await broker.ack("jobs", given)
    (stats,) = (await broker.queue_stats("jobs")).subscriptions
    assert (stats.acked, stats.expired, stats.lowest_unacked_index) == (2, 1, 3)


async def test_a_queue_that_somebody_damaged_by_hand_does_not_hold_up_what_is_due_in_others(
    broker: Broker, store: RedisStore, redis: Redis, root: str
) -> None:
    # Given a queue without its stream, and another one from which something is to be removed
    await broker.create_queue("a")
    await redis.delete(root.replace("jobs", "a") + ":stream")
    await broker.publish("jobs", [b"x"] * 10)
    await broker.alter_queue("jobs", retention_messages=1)
    await broker.ack("jobs", await broker.receive("jobs", limit=10))
    with pytest.raises(StorageError, match="Redis refused a command"):
        await store.tick()
    assert await redis.xlen(f"{root}:stream") == 1


async def test_deleting_a_queue_leaves_no_key_behind(
    broker: Broker, redis: Redis, root: str
) -> None:
    await broker.create_subscription("jobs", "reds", filter='topic == "red"')
    await broker.create_subscription("jobs", "after", after=["default"], max_deliveries=1)
    await broker.publish("jobs", [NewMessage(body=b"a", topic="red", priority=1, dedup_key="k")])
    await broker.ack("jobs", await broker.receive("jobs"))
    given = await broker.receive("jobs", subscription="after")
    await broker.nack("jobs", given, "after")
    # And a server that dies while it filters what is there for a new subscription
    await _die_filtering(broker)
    await broker.publish("jobs", [b"b"])
    await broker.delete_queue("jobs")
    assert [key async for key in redis.scan_iter(match=f"{root}*")] == []


async def test_a_filter_that_nobody_waits_for_is_forgotten_after_a_day(
    address: str, redis: Redis, root: str
) -> None:
    clock = ManualClock()
    store = await RedisStore.open(address, clock=clock)
    broker = Broker(store)
    await broker.create_queue("jobs")
    await broker.publish("jobs", [b"a"])
    await _die_filtering(broker)
    await broker.publish("jobs", [b"b"])
    assert await redis.keys(f"{root}:f:*") != []
    # Given a server that knows of the filter, and a day
    clock.advance(24 * 3600 + 1)
    await store.tick()
    # Then its matches are gone, and publishing leaves no others
    await broker.publish("jobs", [b"c"])
    assert await redis.keys(f"{root}:f:*") == []
    assert await redis.hget(root, "pending") == "[]"
    await store.close()


async def _die_filtering(broker: Broker) -> None:
    """The server dies as it applies the filter of a new subscription to what is there."""

    def die(*arguments: object) -> bool:
        raise StoreUnavailable("it has died")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.storage.redis.subscribing.matches", die)
        with pytest.raises(StoreUnavailable):
            await broker.create_subscription("jobs", "more", filter="true", start="earliest")


async def test_batches_may_be_acked_in_any_order(broker: Broker, redis: Redis, root: str) -> None:
    await broker.publish("jobs", [b"%d" % n for n in range(12)])
    batches = [await broker.receive("jobs", limit=3) for _ in range(4)]
    # When the first one is the last to be acked
    for at, runs in (
        (1, [("6", 3)]),
        (2, [("9", 3)]),
        (0, [("9", 0)]),
        (3, [("12", 0)]),
    ):
        before = (await broker.queue_stats("jobs")).subscriptions[0]
        assert before.in_flight == sum(len(batch) for batch in batches if batch)
        await broker.ack("jobs", batches[at])
        batches[at] = []
        # Then at no time is more settled than was acked
        assert await redis.zrange(f"{root}:s:default:settled", 0, -1, withscores=True) == runs
    (stats,) = (await broker.queue_stats("jobs")).subscriptions
    assert (stats.acked, stats.in_flight, stats.lowest_unacked_index) == (12, 0, 12)


async def test_a_server_that_is_gone_is_no_consumer_for_ever(
    address: str, redis: Redis, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "CONSUMER_IDLE_MS", 0)
    clock = ManualClock()
    servers = []
    for number in (1, 2, 3):
        monkeypatch.setattr("os.getpid", lambda number=number: number)
        servers.append(await RedisStore.open(address, clock=clock))
    first, second, third = [Broker(server) for server in servers]
    # Given a server that has settled all it got, and one that has not
    await first.create_queue("jobs")
    await first.publish("jobs", [b"a", b"b"])
    await first.ack("jobs", await first.receive("jobs", limit=1))
    await second.receive("jobs", limit=1)
    assert await consumers(redis, root) == {"1": 0, "2": 1}
    # Then the regular work of any other removes the former
    await servers[2].tick()
    assert await consumers(redis, root) == {"2": 1}
    # And the latter once its message is somebody else's; but not with every tick
    clock.advance(31)
    await third.receive("jobs", limit=1)
    await servers[0].tick()
    assert await consumers(redis, root) == {"2": 0, "3": 1}
    clock.advance(30)
    await servers[0].tick()
    assert await consumers(redis, root) == {"3": 1}
    # And who asks again is there again
    (given,) = await second.receive("jobs", limit=1)
    assert await second.ack("jobs", [given])
    assert await consumers(redis, root) == {"2": 0, "3": 0}
    for server in servers:
        await server.close()


async def test_a_server_that_was_here_a_moment_ago_stays_a_consumer(
    broker: Broker, store: RedisStore, redis: Redis, root: str
) -> None:
    await broker.publish("jobs", [b"a"])
    await broker.ack("jobs", await broker.receive("jobs"))
    await store.tick()
    assert list((await consumers(redis, root)).values()) == [0]

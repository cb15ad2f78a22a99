"""What a message takes in Redis is bounded; docs/redis.md states what was measured."""

from __future__ import annotations

from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.storage.redis.store import RedisStore

MESSAGES = 5000
BODY_BYTES = 100


async def _bytes(redis: Redis, root: str) -> float:
    """Of all keys of the queue, for each message."""
    keys = [key async for key in redis.scan_iter(match=f"{root}*", count=10_000)]
    return sum([await redis.memory_usage(key, samples=0) or 0 for key in keys]) / MESSAGES


async def test_a_message_takes_little_besides_its_body(
    broker: Broker, redis: Redis, root: str
) -> None:
    for _ in range(0, MESSAGES, 1000):
        await broker.publish("jobs", [b"x" * BODY_BYTES] * 1000)
    backlog = await _bytes(redis, root)
    given = [await broker.receive("jobs", limit=100) for _ in range(0, MESSAGES, 100)]
    in_flight = await _bytes(redis, root)
    for batch in given:
        await broker.ack("jobs", batch)
    settled = await _bytes(redis, root)
    assert backlog - BODY_BYTES < 64
    assert in_flight - backlog < 256
    assert settled - backlog < 8


async def test_what_is_gone_leaves_nothing_even_if_an_older_message_is_kept(
    broker: Broker, store: RedisStore, redis: Redis, root: str
) -> None:
    # Given a dead letter that nobody replays or discards
    await broker.alter_queue("jobs", retention_messages=0)
    await broker.alter_subscription("jobs", "default", max_deliveries=1)
    await broker.create_subscription("jobs", "some", filter="priority == 1")
    await broker.create_subscription(
        "jobs", "child", after=["default"], on_dead_parent="cascade", max_deliveries=1
    )
    await broker.publish("jobs", [b"x"])
    await broker.nack("jobs", await broker.receive("jobs"))
    sizes = []
    for _ in range(3):
        # When many messages come and go after it, in as many gaps as there can be
        await broker.publish("jobs", [NewMessage(body=b"x", priority=n % 2) for n in range(20)])
        for name in ("default", "some", "child"):
            given = await broker.receive("jobs", subscription=name, limit=20)
            bad = [one for one in given if one.index % 4 == 1 and name == "default"]
            await broker.nack("jobs", bad, name)
            await broker.ack("jobs", [one for one in given if one not in bad], name)
        letters = await broker.dead_letters("jobs", 2)
        await broker.discard("jobs", [letter.id for letter in letters])
        await store.tick()
        keys = [key async for key in redis.scan_iter(match=f"{root}:*")]
        sizes.append(sum([await redis.zcard(k) for k in keys if await redis.type(k) == "zset"]))
    # Then the sets of runs do not grow
    assert (await broker.queue_stats("jobs")).messages == 1
    assert sizes[0] == sizes[1] == sizes[2]

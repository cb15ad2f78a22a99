"""What a message takes in Redis is bounded; docs/redis.md states what was measured."""

from __future__ import annotations

from redis.asyncio import Redis

from penstock.broker import Broker

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

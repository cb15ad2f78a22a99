"""Receive and ack in batches, as ``/v1`` does it, against XREADGROUP and XACK of redis-py."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from benchmarks.engine.store import make_bodies
from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.sample import Sample
from benchmarks.scale.beside import beside
from benchmarks.scale.run import Run, penstock, redis_py, redis_server
from benchmarks.scale.scale import BATCH
from penstock.http.v1.fields import MAX_ANSWER_BYTES

BAR = at_least(0.4)
PEER = "redis-py, XREADGROUP and XACK"


async def measure(run: Run) -> Outcome:
    bodies = make_bodies(BATCH)
    batches = run.scale.slice_batches
    with redis_server() as url:
        async with penstock(url) as (broker, _), redis_py(url) as redis:
            await broker.create_queue("bench")
            await redis.xgroup_create("peer", "group", "0", mkstream=True)

            async def ours() -> Sample:
                for _ in range(batches):
                    await broker.publish("bench", bodies)
                start = perf_counter()
                for _ in range(batches):
                    given = await broker.receive("bench", limit=BATCH, most_bytes=MAX_ANSWER_BYTES)
                    await broker.ack("bench", given)
                return Sample(messages=batches * BATCH, seconds=perf_counter() - start)

            async def peer() -> Sample:
                for _ in range(batches):
                    pipeline = redis.pipeline(transaction=False)
                    for body in bodies:
                        pipeline.xadd("peer", {"b": body})
                    await pipeline.execute()
                start = perf_counter()
                for _ in range(batches):
                    found: Any = await redis.xreadgroup(
                        "group", "consumer", {"peer": ">"}, count=BATCH
                    )
                    await redis.xack("peer", "group", *(id for id, _ in found[0][1]))
                return Sample(messages=batches * BATCH, seconds=perf_counter() - start)

            return await beside(run, ours, PEER, peer, BAR)


ROW = Row(name="receive", what="receive + ack", measure=measure)

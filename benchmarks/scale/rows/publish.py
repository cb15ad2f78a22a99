"""Publish in batches, against XADDs of the same bodies in pipelines of redis-py."""

from __future__ import annotations

from time import perf_counter

from benchmarks.engine.store import make_bodies
from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.sample import Sample
from benchmarks.scale.beside import beside
from benchmarks.scale.run import Run, penstock, redis_py, redis_server
from benchmarks.scale.scale import BATCH

BAR = at_least(0.5)
PEER = "redis-py, pipelined XADD"


async def measure(run: Run) -> Outcome:
    bodies = make_bodies(BATCH)
    batches = run.scale.slice_batches
    with redis_server() as url:
        async with penstock(url) as (broker, _), redis_py(url) as redis:
            await broker.create_queue("bench")

            async def ours() -> Sample:
                start = perf_counter()
                for _ in range(batches):
                    await broker.publish("bench", bodies)
                return Sample(messages=batches * BATCH, seconds=perf_counter() - start)

            async def peer() -> Sample:
                start = perf_counter()
                for _ in range(batches):
                    pipeline = redis.pipeline(transaction=False)
                    for body in bodies:
                        pipeline.xadd("peer", {"b": body})
                    await pipeline.execute()
                return Sample(messages=batches * BATCH, seconds=perf_counter() - start)

            return await beside(run, ours, PEER, peer, BAR)


ROW = Row(name="publish", what="publish", measure=measure)

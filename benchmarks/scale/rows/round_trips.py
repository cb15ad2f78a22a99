"""What a request asks of Redis with three servers, against one: counted, not timed."""

from __future__ import annotations

from contextlib import AsyncExitStack

from benchmarks.engine.store import make_bodies
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.verdict import judge_ratio
from benchmarks.scale.run import Run, penstock, redis_server
from benchmarks.scale.scale import BATCH

BAR = at_most(1.0)
SERVERS = 3


async def measure(run: Run) -> Outcome:
    samples = {f"{servers} servers": [await _count(servers)] for servers in (1, SERVERS)}
    verdict = judge_ratio(
        what=f"publish, receive and ack of {BATCH}, {SERVERS} servers",
        unit="round trips",
        ours=samples[f"{SERVERS} servers"],
        reference_name="1 server",
        reference=samples["1 servers"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


async def _count(servers: int) -> float:
    bodies = make_bodies(BATCH)
    with redis_server() as url:
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(penstock(url)) for _ in range(servers)]
            await opened[0][0].create_queue("bench")
            for broker, _ in opened:
                # Each has learned of the queue, and Redis of the scripts.
                await broker.publish("bench", [b"x"])
                await broker.ack("bench", await broker.receive("bench"))
            before = sum(store.round_trips for _, store in opened)
            for broker, _ in opened:
                await broker.publish("bench", bodies)
                await broker.ack("bench", await broker.receive("bench", limit=BATCH))
            return (sum(store.round_trips for _, store in opened) - before) / servers


ROW = Row(name="round-trips", what="work of a request", measure=measure)

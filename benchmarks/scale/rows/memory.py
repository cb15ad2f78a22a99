"""What a plain message takes in Redis besides its body: in a backlog, in flight, and settled."""

from __future__ import annotations

from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.verdict import Verdict
from benchmarks.scale.run import Run, penstock, redis_py, redis_server
from benchmarks.scale.scale import BATCH

BODY_BYTES = 100
FILL_BATCH = 1000


async def measure(run: Run) -> Outcome:
    messages = run.scale.backlog // 10
    with redis_server() as url:
        async with penstock(url) as (broker, _), redis_py(url) as redis:

            async def used() -> int:
                return int((await redis.info("memory"))["used_memory_dataset"])

            await broker.create_queue("bench", retention_seconds=None)
            empty = await used()
            for _ in range(0, messages, FILL_BATCH):
                await broker.publish("bench", [b"x" * BODY_BYTES] * FILL_BATCH)
            backlog = await used()
            given = [await broker.receive("bench", limit=BATCH) for _ in range(0, messages, BATCH)]
            in_flight = await used()
            for batch in given:
                await broker.ack("bench", batch)
            settled = await used()
    figures = {
        "in a backlog, besides its body": (backlog - empty) / messages - BODY_BYTES,
        "more while it is in flight": (in_flight - backlog) / messages,
        "more once it is settled and kept": (settled - backlog) / messages,
    }
    verdicts = tuple(
        Verdict(
            what=f"{what}, {messages:,} messages",
            unit="bytes/message",
            ours=figure,
            reference_name=None,
            reference=None,
            figure=figure,
            bar=None,
            status="shown",
        )
        for what, figure in figures.items()
    )
    return Outcome(verdicts=verdicts, samples={what: [value] for what, value in figures.items()})


ROW = Row(name="memory", what="memory of a message", measure=measure)

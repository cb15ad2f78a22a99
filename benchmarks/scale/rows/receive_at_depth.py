"""Receive and ack at the head of a long backlog, against a short one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from benchmarks.engine.store import make_bodies
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, take_turns
from benchmarks.harness.verdict import judge_ratio
from benchmarks.scale.run import Run, penstock, redis_server
from benchmarks.scale.scale import BATCH
from penstock.broker import Broker

BAR = at_most(1.3)
FILL_BATCH = 1000


async def measure(run: Run) -> Outcome:
    scale = run.scale
    bodies = make_bodies(BATCH)
    with redis_server() as url:
        async with penstock(url) as (broker, _):
            for name, depth in (("long", scale.backlog), ("short", scale.small_backlog)):
                await broker.create_queue(name)
                with run.screen.meter(f"fill {name}", total=depth // FILL_BATCH) as meter:
                    for _ in range(0, depth, FILL_BATCH):
                        await broker.publish(name, [b"x" * 100] * FILL_BATCH)
                        meter.advance()
            contenders = {
                name: _turn(broker, name, bodies, scale.slice_batches) for name in ("long", "short")
            }
            rounds = [
                await take_turns(contenders, slices=scale.slices) for _ in range(scale.rounds)
            ]
    milliseconds = {
        name: [BATCH / rate * 1e3 for rate in rates] for name, rates in by_contender(rounds).items()
    }
    verdict = judge_ratio(
        what=f"batches of {BATCH} at a backlog of {scale.backlog:,}",
        unit="ms/batch",
        ours=milliseconds["long"],
        reference_name=f"at {scale.small_backlog:,}",
        reference=milliseconds["short"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=milliseconds)


def _turn(
    broker: Broker, queue: str, bodies: list[bytes], batches: int
) -> Callable[[], Coroutine[Any, Any, Sample]]:
    async def turn() -> Sample:
        """What it takes from the backlog it puts back at its end, outside of the time."""
        seconds = 0.0
        for _ in range(batches):
            start = perf_counter()
            await broker.ack(queue, await broker.receive(queue, limit=BATCH))
            seconds += perf_counter() - start
            await broker.publish(queue, bodies)
        return Sample(messages=batches * BATCH, seconds=seconds)

    return turn


ROW = Row(name="receive-at-depth", what="receive + ack", measure=measure)

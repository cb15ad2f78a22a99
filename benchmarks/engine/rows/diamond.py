"""A diamond of dependencies, against subscriptions that do not wait for each other."""

from __future__ import annotations

import asyncio
import gc
from time import perf_counter

import penstock
from benchmarks.engine.run import Run
from benchmarks.engine.scale import BATCH
from benchmarks.engine.store import (
    QUEUE,
    make_bodies,
    open_store,
    publish_count,
    receive_and_ack,
)
from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio

BAR = at_least(0.3)
PUBLISHERS = 16
PATIENCE_SECONDS = 120.0

Shape = dict[str, list[str]]
DIAMOND: Shape = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
INDEPENDENT: Shape = {"a": [], "b": [], "c": [], "d": []}


async def measure(run: Run) -> Outcome:
    rounds = []
    shapes = [("diamond", DIAMOND), ("independent", INDEPENDENT)]
    with run.screen.meter("rounds", total=run.scale.rounds) as meter:
        for _ in range(run.scale.rounds):
            rounds.append({name: await _drain(run, shape) for name, shape in shapes})
            shapes.reverse()
            meter.advance()
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"A; B and C after A; D after B and C; {run.scale.diamond_messages:,} messages",
        unit="messages/s",
        ours=samples["diamond"],
        reference_name="4 independent subscriptions",
        reference=samples["independent"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


async def _drain(run: Run, shape: Shape) -> float:
    """Messages a second, from the first publish until all four subscriptions acked the last.

    The four take a step together, and each step is a batch of each. So nobody polls an empty
    subscription in a hurry, and both shapes are driven by the same steps.
    """
    messages = run.scale.diamond_messages
    with run.fresh_directory("diamond") as directory:
        async with open_store(directory, sync="always") as broker:
            await broker.create_queue(QUEUE)
            for name, after in shape.items():
                await broker.create_subscription(QUEUE, name, after=after)
            gc.collect()
            start = perf_counter()
            await publish_count(broker, make_bodies(BATCH), tasks=PUBLISHERS, messages=messages)
            await _step_until_empty(broker, list(shape), messages, start + PATIENCE_SECONDS)
            return messages / (perf_counter() - start)


async def _step_until_empty(
    broker: penstock.Broker, names: list[str], messages: int, deadline: float
) -> None:
    left = dict.fromkeys(names, messages)
    while any(left.values()):
        if perf_counter() > deadline:
            raise TimeoutError(f"not drained within {PATIENCE_SECONDS:g} s; left: {left}")
        busy = [name for name in names if left[name]]
        done = await asyncio.gather(
            *(receive_and_ack(broker, limit=BATCH, subscription=name) for name in busy)
        )
        for name, count in zip(busy, done, strict=True):
            left[name] -= count


ROW = Row(name="diamond", what="a dependency diamond", measure=measure)

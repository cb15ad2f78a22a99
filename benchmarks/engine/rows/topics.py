"""Publish to a queue with many subscriptions that each want another topic."""

from __future__ import annotations

from itertools import cycle
from time import perf_counter

import penstock
from benchmarks.engine.run import Run
from benchmarks.engine.scale import BATCH
from benchmarks.engine.store import QUEUE, make_bodies, open_store
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, Slice, take_turns
from benchmarks.harness.verdict import Verdict, judge_ratio

BAR = at_most(3)
SIZES = {"a message": 1, f"a batch of {BATCH}": BATCH}

Batches = list[list[penstock.NewMessage]]


async def measure(run: Run) -> Outcome:
    """Without syncs: they cost the same on both sides, and would hide the difference."""
    rounds = []
    with run.screen.meter("rounds", total=run.scale.rounds) as meter:
        for _ in range(run.scale.rounds):
            rounds.append(await _round(run))
            meter.advance()
    samples = by_contender(rounds)
    verdicts = tuple(_judge(run, size, samples) for size in SIZES)
    return Outcome(verdicts=verdicts, samples=samples, notes=("measured with sync never",))


def _judge(run: Run, size: str, samples: dict[str, list[float]]) -> Verdict:
    return judge_ratio(
        what=f"{size}, {run.scale.topics:,} subscriptions on as many topics",
        unit="µs/message",
        ours=samples[f"many, {size}"],
        reference_name="1 subscription",
        reference=samples[f"one, {size}"],
        bar=BAR,
    )


async def _round(run: Run) -> dict[str, float]:
    """Microseconds a message, with one subscription and with many."""
    with run.fresh_directory("one") as one, run.fresh_directory("many") as many:
        async with (
            open_store(one, sync="never") as with_one,
            open_store(many, sync="never") as with_many,
        ):
            await _subscribe(with_one, topics=1)
            await _subscribe(with_many, topics=run.scale.topics)
            contenders: dict[str, Slice] = {}
            for text, size in SIZES.items():
                seconds = run.scale.slice_seconds / len(SIZES)
                contenders[f"one, {text}"] = _publishing(with_one, _batches(1, size), seconds)
                contenders[f"many, {text}"] = _publishing(
                    with_many, _batches(run.scale.topics, size), seconds
                )
            rates = await take_turns(contenders, slices=run.scale.slices)
    return {name: 1e6 / rate for name, rate in rates.items()}


async def _subscribe(broker: penstock.Broker, *, topics: int) -> None:
    await broker.create_queue(QUEUE)
    for topic in range(topics):
        await broker.create_subscription(QUEUE, f"s{topic}", filter=f'topic == "t{topic}"')


def _batches(topics: int, size: int) -> Batches:
    """As many messages on both sides, so that only the topics differ."""
    bodies = make_bodies(1_000)
    messages = [
        penstock.NewMessage(body=body, topic=f"t{index % topics}")
        for index, body in enumerate(bodies)
    ]
    return [messages[start : start + size] for start in range(0, len(messages), size)]


def _publishing(broker: penstock.Broker, batches: Batches, seconds: float) -> Slice:
    async def publish() -> Sample:
        done = 0
        start = perf_counter()
        deadline = start + seconds
        for batch in cycle(batches):
            await broker.publish(QUEUE, batch)
            done += len(batch)
            if perf_counter() >= deadline:
                break
        return Sample(messages=done, seconds=perf_counter() - start)

    return publish


ROW = Row(name="topics", what="publish", measure=measure)

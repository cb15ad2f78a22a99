"""A hundred subscriptions on one queue, each by its own topic, against one."""

from __future__ import annotations

from benchmarks.fanout.backlog import drained
from benchmarks.fanout.run import Run
from benchmarks.fanout.scale import TOPICS
from benchmarks.fanout.stage import rate, stage
from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio

BAR = at_least(0.7)


async def measure(run: Run) -> Outcome:
    rounds = []
    calls = run.scale.calls
    async with stage(run) as on:
        for _ in range(run.scale.rounds):
            before = rate(await drained(on, calls))
            many = rate(await drained(on, calls, TOPICS))
            after = rate(await drained(on, calls))
            rounds.append({"many": many, "one": (before + after) / 2})
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"{TOPICS} topics",
        unit="calls/s",
        ours=samples["many"],
        reference_name="one subscription, one topic",
        reference=samples["one"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


ROW = Row(name="topics", what="callbacks of many subscriptions", measure=measure)

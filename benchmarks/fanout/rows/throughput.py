"""Callbacks a second of one subscription, against a bare client that posts the same."""

from __future__ import annotations

from benchmarks.fanout.backlog import drained
from benchmarks.fanout.run import Run
from benchmarks.fanout.scale import CONCURRENCY
from benchmarks.fanout.stage import rate, stage
from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio

BAR = at_least(0.6)


async def measure(run: Run) -> Outcome:
    rounds = []
    calls = run.scale.calls
    async with stage(run) as on:
        for _ in range(run.scale.rounds):
            before = rate(await on.run_bare(calls, CONCURRENCY))
            ours = rate(await drained(on, calls))
            after = rate(await on.run_bare(calls, CONCURRENCY))
            # On both sides, so that a machine that slows down favours nobody.
            rounds.append({"callbacks": ours, "bare": (before + after) / 2})
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"concurrency {CONCURRENCY}",
        unit="calls/s",
        ours=samples["callbacks"],
        reference_name="a bare aiohttp client",
        reference=samples["bare"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


ROW = Row(name="throughput", what="callbacks of one subscription", measure=measure)

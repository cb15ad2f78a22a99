"""A diamond of four callbacks: D after B and C, both after A; until D, against one callback."""

from __future__ import annotations

from benchmarks.fanout.run import Run
from benchmarks.fanout.stage import milliseconds, stage
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio

BAR = at_most(3.5)
DIAMOND = {"A": [], "B": ["A"], "C": ["A"], "D": ["B", "C"]}


async def measure(run: Run) -> Outcome:
    rounds = []
    async with stage(run) as on:
        single = await on.queue()
        await on.subscribe(single, "called", "called")
        diamond = await on.queue()
        for name, after in DIAMOND.items():
            await on.subscribe(diamond, name, name, after=after)
        await on.latencies(single, 20, 1)
        await on.latencies(diamond, 20, len(DIAMOND))
        for _ in range(run.scale.rounds):
            one = await on.latencies(single, run.scale.singles, 1)
            four = await on.latencies(diamond, run.scale.singles, len(DIAMOND))
            rounds.append(
                {
                    "diamond": milliseconds(four.latencies["/D"], 0.5),
                    "one": milliseconds(one.latencies["/called"], 0.5),
                }
            )
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what="p50",
        unit="ms",
        ours=samples["diamond"],
        reference_name="one callback",
        reference=samples["one"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


ROW = Row(name="diamond", what="a diamond of four callbacks", measure=measure)

"""Twenty endpoints of which one is dead, against the other nineteen alone."""

from __future__ import annotations

import asyncio

from benchmarks.fanout.bodies import make_body
from benchmarks.fanout.run import Run
from benchmarks.fanout.scale import ENDPOINTS
from benchmarks.fanout.stage import Stage, milliseconds, stage
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio

BAR = at_most(1.3)


async def measure(run: Run) -> Outcome:
    rounds = []
    async with stage(run) as on:
        await _p99(run, on, is_one_dead=False)  # until everyone is warm
        for _ in range(run.scale.rounds):
            before = await _p99(run, on, is_one_dead=False)
            with_it = await _p99(run, on, is_one_dead=True)
            after = await _p99(run, on, is_one_dead=False)
            rounds.append({"with a dead one": with_it, "without": (before + after) / 2})
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what="p99 of the others",
        unit="ms",
        ours=samples["with a dead one"],
        reference_name="without it",
        reference=samples["without"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


async def _p99(run: Run, on: Stage, *, is_one_dead: bool) -> float:
    """Of the living, while messages for all of them come at a steady pace."""
    queue = await on.queue()
    living = ENDPOINTS - 1
    for number in range(living):
        await on.subscribe(queue, f"alive-{number}", f"alive-{number}")
    if is_one_dead:
        await on.subscribe(queue, "dead", "hang/dead")
    body = make_body()
    await on.take()
    for _ in range(run.scale.paced):
        await on.publish(queue, body)
        await asyncio.sleep(run.scale.paced_seconds)
    await on.wait_for(run.scale.paced * living)
    arrivals = await on.take()
    await on.admin.delete_queue(queue)
    return milliseconds([one for many in arrivals.latencies.values() for one in many], 0.99)


ROW = Row(name="dead-endpoint", what="one dead endpoint among twenty", measure=measure)

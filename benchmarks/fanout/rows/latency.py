"""From a publish to the callback, on an idle server, against bare round trips and one sync."""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter_ns

from benchmarks.fanout.bodies import make_body
from benchmarks.fanout.run import Run
from benchmarks.fanout.stage import Stage, milliseconds, stage
from benchmarks.harness.bar import at_most
from benchmarks.harness.disk import BareDisk
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio

BAR = at_most(1)
ROUND_TRIPS = 3
IDLE_SECONDS = 0.01


async def measure(run: Run) -> Outcome:
    async with stage(run) as on:
        queue = await on.queue()
        await on.subscribe(queue, "called", "called")
        await on.latencies(queue, 20, 1)  # until everyone is warm
        with run.fresh_directory("disk") as directory:
            rounds = [
                await _round(run, on, queue, BareDisk(directory / str(number)))
                for number in range(run.scale.rounds)
            ]
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what="p50",
        unit="ms",
        ours=samples["publish to callback"],
        reference_name="3 bare POSTs + one fdatasync",
        reference=samples["reference"],
        bar=BAR,
    )
    notes = tuple(f"{name}: {median(values):.3f} ms" for name, values in samples.items())
    return Outcome(verdicts=(verdict,), samples=samples, notes=notes)


async def _round(run: Run, on: Stage, queue: str, bare: BareDisk) -> dict[str, float]:
    """One of each, again and again, so that all three see the same machine and the same disk."""
    body = make_body()
    trips, syncs = [], []
    await on.take()
    with bare as disk:
        for number in range(1, run.scale.singles + 1):
            # The ack of the one before has a sync of its own, and the server is to be idle.
            await asyncio.sleep(IDLE_SECONDS)
            began = perf_counter_ns()
            await on.post(body)
            posted = perf_counter_ns()
            disk.append(body)
            synced = perf_counter_ns()
            trips.append(posted - began)
            syncs.append(synced - posted)
            await on.publish(queue, body)
            await on.wait_for(2 * number)
    latencies = (await on.take()).latencies["/called"]
    trip, sync = milliseconds(trips, 0.5), milliseconds(syncs, 0.5)
    return {
        "publish to callback": milliseconds(latencies, 0.5),
        "p99": milliseconds(latencies, 0.99),
        "bare POST": trip,
        "fdatasync": sync,
        "reference": ROUND_TRIPS * trip + sync,
    }


ROW = Row(name="latency", what="publish until the callback is there, idle", measure=measure)

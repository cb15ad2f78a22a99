"""From a publish to the callback, on an idle server, against bare round trips and one sync."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns

from benchmarks.engine.bar import at_most
from benchmarks.engine.disk import BareDisk
from benchmarks.engine.rows.row import Outcome, by_contender
from benchmarks.engine.verdict import judge_ratio
from benchmarks.fanout.bodies import make_body
from benchmarks.fanout.rows.row import Row
from benchmarks.fanout.run import Run
from benchmarks.fanout.stage import Stage, milliseconds, stage

BAR = at_most(1)
ROUND_TRIPS = 3


async def measure(run: Run) -> Outcome:
    async with stage(run) as on:
        queue = await on.queue()
        await on.subscribe(queue, "called", "called")
        await on.latencies(queue, 20, 1)  # until everyone is warm
        with run.fresh_directory("disk") as directory:
            rounds = [await _round(run, on, queue, directory) for _ in range(run.scale.rounds)]
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


async def _round(run: Run, on: Stage, queue: str, directory: Path) -> dict[str, float]:
    trips = await _round_trips(on, run.scale.singles)
    syncs = _syncs(directory / "file", run.scale.syncs)
    arrivals = await on.latencies(queue, run.scale.singles, 1)
    trip = milliseconds(trips, 0.5)
    return {
        "publish to callback": milliseconds(arrivals.latencies["/called"], 0.5),
        "p99": milliseconds(arrivals.latencies["/called"], 0.99),
        "bare POST": trip,
        "fdatasync": median(syncs) * 1000,
        "reference": ROUND_TRIPS * trip + median(syncs) * 1000,
    }


async def _round_trips(on: Stage, count: int) -> list[int]:
    body = make_body()
    taken = []
    for _ in range(count):
        began = perf_counter_ns()
        await on.post(body)
        taken.append(perf_counter_ns() - began)
    return taken


def _syncs(path: Path, count: int) -> list[float]:
    taken = []
    with BareDisk(path) as disk:
        for _ in range(count):
            began = perf_counter()
            disk.append(make_body())
            taken.append(perf_counter() - began)
    path.unlink()
    return taken


ROW = Row(name="latency", what="publish until the callback is there, idle", measure=measure)

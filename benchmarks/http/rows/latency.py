"""POST /queue/push at half of the load that the server can take, against one sync of the disk."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.harness.bar import at_most
from benchmarks.harness.disk import BareDisk
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio
from benchmarks.http.load import AUTHORIZATION, push_request
from benchmarks.http.pace import paced, percentile
from benchmarks.http.penstock_server import noop_server, penstock_server
from benchmarks.http.run import Run
from benchmarks.http.scale import BODY_BYTES, CONNECTIONS
from benchmarks.http.wrk import wrk

BAR = at_most(10)
MILLISECONDS = 1000


async def measure(run: Run) -> Outcome:
    rounds = []
    with (
        run.fresh_directory("penstock") as ours,
        run.fresh_directory("noop") as theirs,
        penstock_server(ours) as penstock,
        noop_server(theirs) as noop,
    ):
        for _ in range(run.scale.rounds):
            full = await wrk(
                penstock.url,
                "push.lua",
                connections=CONNECTIONS,
                seconds=run.scale.slice_seconds,
                argument=AUTHORIZATION,
            )
            rounds.append(_round(run, ours, penstock.port, noop.port, full.rate / 2))
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what="p99 at half load",
        unit="ms",
        ours=samples["p99"],
        reference_name="one fdatasync (median)",
        reference=samples["fdatasync"],
        bar=BAR,
    )
    notes = tuple(f"{name}: {median(values):,.3f}" for name, values in samples.items())
    return Outcome(verdicts=(verdict,), samples=samples, notes=notes)


def _round(run: Run, directory: Path, port: int, noop_port: int, rate: float) -> dict[str, float]:
    seconds = run.scale.paced_seconds
    syncs = _syncs(directory / "before", run.scale.syncs)
    pushes = paced(port, push_request(), rate=rate, seconds=seconds, connections=CONNECTIONS)
    syncs += _syncs(directory / "after", run.scale.syncs)
    nothing = paced(
        noop_port, push_request(), rate=rate, seconds=seconds / 2, connections=CONNECTIONS
    )
    return {
        "rate": rate,
        "p50": percentile(pushes, 50) * MILLISECONDS,
        "p99": percentile(pushes, 99) * MILLISECONDS,
        "p99.9": percentile(pushes, 99.9) * MILLISECONDS,
        "p50 of the no-op": percentile(nothing, 50) * MILLISECONDS,
        "p99 of the no-op": percentile(nothing, 99) * MILLISECONDS,
        "fdatasync": median(syncs) * MILLISECONDS,
        "p99 of fdatasync": percentile(syncs, 99) * MILLISECONDS,
    }


def _syncs(path: Path, count: int) -> list[float]:
    """What it takes to append a body to a file and have it on the disk, again and again."""
    taken = []
    with BareDisk(path) as disk:
        for _ in range(count):
            began = perf_counter()
            disk.append(b"x" * BODY_BYTES)
            taken.append(perf_counter() - began)
    path.unlink()
    return taken


ROW = Row(name="latency", what="POST /queue/push", measure=measure)

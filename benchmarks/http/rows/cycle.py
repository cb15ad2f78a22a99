"""Push, pop, ack, in turn on each of 32 connections, against three requests that do nothing."""

from __future__ import annotations

from functools import partial

from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, take_turns
from benchmarks.harness.verdict import judge_ratio
from benchmarks.http.load import AUTHORIZATION
from benchmarks.http.penstock_server import noop_server, penstock_server
from benchmarks.http.run import Run
from benchmarks.http.scale import CONNECTIONS
from benchmarks.http.wrk import wrk

BAR = at_least(0.5)


async def measure(run: Run) -> Outcome:
    seconds = run.scale.slice_seconds
    with (
        run.fresh_directory("penstock") as ours,
        run.fresh_directory("noop") as theirs,
        penstock_server(ours) as penstock,
        noop_server(theirs) as noop,
    ):
        contenders = {
            "penstock": partial(_cycles, penstock.url, seconds),
            "no-op": partial(_cycles, noop.url, seconds),
        }
        for cycles in contenders.values():
            await cycles()
        rounds = [
            await take_turns(contenders, slices=run.scale.slices) for _ in range(run.scale.rounds)
        ]
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"{CONNECTIONS} connections",
        unit="cycles/s",
        ours=samples["penstock"],
        reference_name="three no-op requests",
        reference=samples["no-op"],
        bar=BAR,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


async def _cycles(url: str, seconds: float) -> Sample:
    # A thread a connection, so that the script knows which answer belongs to which request.
    requests = await wrk(
        url,
        "cycle.lua",
        connections=CONNECTIONS,
        threads=CONNECTIONS,
        seconds=seconds,
        argument=AUTHORIZATION,
    )
    return Sample(messages=requests.messages // 3, seconds=requests.seconds)


ROW = Row(name="cycle", what="push + pop + ack", measure=measure)

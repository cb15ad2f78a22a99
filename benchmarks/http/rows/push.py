"""POST /queue/push on 32 connections, against a handler that does nothing."""

from __future__ import annotations

from functools import partial
from statistics import median

from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import take_turns
from benchmarks.harness.verdict import judge_ratio
from benchmarks.http.load import AUTHORIZATION
from benchmarks.http.penstock_server import noop_server, penstock_server
from benchmarks.http.run import Run
from benchmarks.http.scale import CONNECTIONS
from benchmarks.http.wrk import wrk

BAR = at_least(0.55)


async def measure(run: Run) -> Outcome:
    with (
        run.fresh_directory("penstock") as ours,
        run.fresh_directory("noop") as theirs,
        penstock_server(ours) as penstock,
        noop_server(theirs) as noop,
        run.fresh_directory("direct") as other,
        noop_server(other, "direct") as direct,
    ):
        push = partial(
            wrk,
            script="push.lua",
            connections=CONNECTIONS,
            seconds=run.scale.slice_seconds,
            argument=AUTHORIZATION,
        )
        contenders = {
            "penstock": partial(push, penstock.url),
            "no-op": partial(push, noop.url),
            "no-op on Penstock's connections": partial(push, direct.url),
        }
        for server in (penstock, noop, direct):
            await push(server.url, seconds=1)
        rounds = [
            await take_turns(contenders, slices=run.scale.slices) for _ in range(run.scale.rounds)
        ]
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"{CONNECTIONS} connections",
        unit="requests/s",
        ours=samples["penstock"],
        reference_name="a no-op BlackSheep handler",
        reference=samples["no-op"],
        bar=BAR,
    )
    notes = tuple(f"{name}: {median(rates):,.0f}/s" for name, rates in samples.items())
    return Outcome(verdicts=(verdict,), samples=samples, notes=notes)


ROW = Row(name="push", what="POST /queue/push", measure=measure)

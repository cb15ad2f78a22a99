"""SendMessage on moto's server, for scale: what a push costs elsewhere in Python."""

from __future__ import annotations

from functools import partial

from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import take_turns
from benchmarks.harness.verdict import absent, judge_ratio
from benchmarks.http.load import AUTHORIZATION
from benchmarks.http.peers import Moto
from benchmarks.http.penstock_server import penstock_server
from benchmarks.http.run import Run
from benchmarks.http.scale import CONNECTIONS
from benchmarks.http.wrk import wrk

WHAT = f"{CONNECTIONS} connections, for scale"
UNIT = "requests/s"


async def measure(run: Run) -> Outcome:
    load = partial(wrk, connections=CONNECTIONS, seconds=run.scale.slice_seconds)
    with run.fresh_directory("penstock") as ours, penstock_server(ours) as penstock:
        push = partial(load, penstock.url, "push.lua", argument=AUTHORIZATION)
        if Moto not in run.peers:
            rate = (await push()).rate
            verdict = absent(what=WHAT, unit=UNIT, ours=[rate], reference_name=Moto.name, bar=None)
            return Outcome(verdicts=(verdict,), samples={"penstock": [rate]})
        with run.fresh_directory("moto") as theirs, Moto.running(theirs) as moto:
            send = partial(load, moto.url, "send_message.lua", argument=moto.queue_url)
            contenders = {"penstock": push, "moto": send}
            rounds = [await take_turns(contenders, slices=1) for _ in range(run.scale.rounds)]
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=WHAT,
        unit=UNIT,
        ours=samples["penstock"],
        reference_name=f"SendMessage on {Moto.name}: in memory, no auth",
        reference=samples["moto"],
        bar=None,
    )
    return Outcome(verdicts=(verdict,), samples=samples)


ROW = Row(name="send-message", what="POST /queue/push", measure=measure)

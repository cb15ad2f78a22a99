"""32 callers of a client publish one message a call, against the clients of other brokers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from time import perf_counter

from benchmarks.engine.store import make_bodies
from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, Slice, take_turns
from benchmarks.harness.verdict import Verdict, absent, judge_ratio
from benchmarks.http.peers import Broker, Nats, NatsAlways, Penstock, RabbitMq, Redis
from benchmarks.http.run import Run
from benchmarks.http.scale import CONNECTIONS

BARS: dict[type[Broker], Bar] = {
    RabbitMq: at_least(5),
    Nats: at_least(1.5),
    NatsAlways: at_least(1.5),
    Redis: at_least(3),
}
WHAT = f"{CONNECTIONS} callers, one message a call"
UNIT = "messages/s"


async def measure(run: Run) -> Outcome:
    async with AsyncExitStack() as stack:
        contenders: dict[str, Slice] = {}
        brokers: list[type[Broker]] = [Penstock, *(peer for peer in BARS if peer in run.peers)]
        for broker in brokers:
            directory = stack.enter_context(run.fresh_directory(broker.__name__.lower()))
            server = stack.enter_context(broker.running(directory))
            client = await stack.enter_async_context(broker.connected(server))
            contenders[broker.name] = partial(_publish_for, client, run.scale.slice_seconds)
        rounds = [
            await take_turns(contenders, slices=run.scale.slices) for _ in range(run.scale.rounds)
        ]
    samples = by_contender(rounds)
    notes = tuple(
        f"{peer.name}: {median(samples[peer.name]):,.0f}/s; a power loss leaves {peer.durability}"
        for peer in BARS
        if peer in run.peers
    )
    verdicts = tuple(_verdict(run, peer, bar, samples) for peer, bar in BARS.items())
    return Outcome(verdicts=verdicts, samples=samples, notes=notes)


def _verdict(run: Run, peer: type[Broker], bar: Bar, samples: dict[str, list[float]]) -> Verdict:
    ours = samples[Penstock.name]
    if peer not in run.peers:
        return absent(what=WHAT, unit=UNIT, ours=ours, reference_name=peer.name, bar=bar)
    return judge_ratio(
        what=WHAT,
        unit=UNIT,
        ours=ours,
        reference_name=peer.name,
        reference=samples[peer.name],
        bar=bar,
    )


async def _publish_for(client: Broker, seconds: float) -> Sample:
    bodies = make_bodies(1000)
    start = perf_counter()
    until = start + seconds

    async def caller(number: int) -> int:
        sent = number
        while perf_counter() < until:
            await client.publish(bodies[sent % len(bodies)])
            sent += 1
        return sent - number

    sent = await asyncio.gather(*map(caller, range(CONNECTIONS)))
    return Sample(messages=sum(sent), seconds=perf_counter() - start)


ROW = Row(name="publish", what="AsyncClient.publish", measure=measure)

"""A worker receives and acks, one message a handler call, against other brokers' consumers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from statistics import median

from benchmarks.engine.store import make_bodies
from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, Slice, take_turns
from benchmarks.harness.verdict import Verdict, absent, judge_ratio
from benchmarks.http.peers import Broker, Nats, Penstock, RabbitMq
from benchmarks.http.run import Run

# JetStream syncs nothing for a consumer, so its sync interval makes no difference here.
BARS: dict[type[Broker], Bar] = {RabbitMq: at_least(5), Nats: at_least(1.5)}
WHAT = "one message a handler call"
UNIT = "messages/s"
FILL = 1000


async def measure(run: Run) -> Outcome:
    async with AsyncExitStack() as stack:
        contenders: dict[str, Slice] = {}
        brokers: list[type[Broker]] = [Penstock, *(peer for peer in BARS if peer in run.peers)]
        for broker in brokers:
            directory = stack.enter_context(run.fresh_directory(broker.__name__.lower()))
            server = stack.enter_context(broker.running(directory))
            client = await stack.enter_async_context(broker.connected(server))
            contenders[broker.name] = _Turns(client, run).turn
        rounds = [
            await take_turns(contenders, slices=run.scale.slices) for _ in range(run.scale.rounds)
        ]
    samples = by_contender(rounds)
    notes = tuple(f"{name}: {median(rates):,.0f}/s" for name, rates in samples.items())
    verdicts = tuple(_verdict(run, peer, bar, samples) for peer, bar in BARS.items())
    return Outcome(verdicts=verdicts, samples=samples, notes=notes)


class _Turns:
    """The turns of one client. Its queue is filled up before each, and nobody takes that time."""

    def __init__(self, client: Broker, run: Run) -> None:
        self._client = client
        self._scale = run.scale
        self._bodies = make_bodies(FILL)
        self._left = 0

    async def turn(self) -> Sample:
        wanted = self._scale.worker_messages
        while self._left < wanted:
            await self._client.publish_many(self._bodies)
            self._left += FILL
        sample = await self._client.consume(self._scale.slice_seconds, wanted)
        self._left -= sample.messages
        return sample


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


ROW = Row(name="worker", what="receive + ack", measure=measure)

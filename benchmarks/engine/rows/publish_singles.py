"""Durable publish of one message at a time, against the other embedded queues."""

from __future__ import annotations

from contextlib import ExitStack, closing
from statistics import median

from benchmarks.engine.peers import Peer, PersistQueue
from benchmarks.engine.run import Run
from benchmarks.engine.store import QUEUE, make_bodies, open_store, publish_for
from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, Slice, repeated, take_turns
from benchmarks.harness.verdict import Verdict, absent, judge_ratio

TASKS = 64
BAR_PERSIST_QUEUE = at_least(10)
BAR_ANY_OTHER = at_least(3)
WHAT = f"one at a time, {TASKS} tasks"
UNIT = "messages/s"


async def measure(run: Run) -> Outcome:
    rounds = []
    with run.screen.meter("rounds", total=run.scale.rounds) as meter:
        for _ in range(run.scale.rounds):
            rounds.append(await _round(run))
            meter.advance()
    samples = by_contender(rounds)
    notes = tuple(
        f"{peer.name}: {median(samples[peer.name]):,.0f}/s; a power loss leaves {peer.durability}"
        for peer in run.peers
    )
    return Outcome(
        verdicts=(_against_persist_queue(run, samples), _against_any_other(run, samples)),
        samples=samples,
        notes=notes,
    )


def _against_persist_queue(run: Run, samples: dict[str, list[float]]) -> Verdict:
    name = PersistQueue.name
    if name in run.missing_peers:
        return absent(
            what=WHAT,
            unit=UNIT,
            ours=samples["penstock"],
            reference_name=name,
            bar=BAR_PERSIST_QUEUE,
        )
    return judge_ratio(
        what=WHAT,
        unit=UNIT,
        ours=samples["penstock"],
        reference_name=name,
        reference=samples[name],
        bar=BAR_PERSIST_QUEUE,
    )


def _against_any_other(run: Run, samples: dict[str, list[float]]) -> Verdict:
    others = [peer.name for peer in run.peers if peer is not PersistQueue]
    if not others:
        return absent(
            what=WHAT,
            unit=UNIT,
            ours=samples["penstock"],
            reference_name="any other",
            bar=BAR_ANY_OTHER,
        )
    best = max(others, key=lambda name: median(samples[name]))
    return judge_ratio(
        what=WHAT,
        unit=UNIT,
        ours=samples["penstock"],
        reference_name=f"best other: {best}",
        reference=samples[best],
        bar=BAR_ANY_OTHER,
        missing=any(name != PersistQueue.name for name in run.missing_peers),
    )


async def _round(run: Run) -> dict[str, float]:
    body = make_bodies(1)
    seconds = run.scale.slice_seconds
    with ExitStack() as stack, run.fresh_directory("penstock") as ours:
        async with open_store(ours, sync="always") as broker:
            await broker.create_queue(QUEUE)

            async def publish() -> Sample:
                return await publish_for(broker, body, tasks=TASKS, seconds=seconds)

            contenders: dict[str, Slice] = {"penstock": publish}
            for peer in run.peers:
                directory = stack.enter_context(run.fresh_directory(peer.name))
                queue = stack.enter_context(closing(peer.open(directory)))
                contenders[peer.name] = _putting(queue, body[0], seconds)
            return await take_turns(contenders, slices=run.scale.slices)


def _putting(queue: Peer, body: bytes, seconds: float) -> Slice:
    def put() -> int:
        queue.put(body)
        return 1

    return repeated(put, seconds=seconds)


ROW = Row(name="publish-singles", what="durable publish", measure=measure)

"""Publish, receive and ack, in batches, against the other embedded queues."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from statistics import median
from time import perf_counter

import penstock
from benchmarks.engine.peers import Peer
from benchmarks.engine.run import Run
from benchmarks.engine.scale import BATCH
from benchmarks.engine.store import QUEUE, make_bodies, open_store, receive_and_ack
from benchmarks.harness.bar import TIMES, at_least
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, Slice, repeated, take_turns
from benchmarks.harness.verdict import absent, judge_ratio

TASKS = 16
BAR = at_least(15)
UNIT = "messages/s"
CALL_BY_CALL = ", call by call"


async def measure(run: Run) -> Outcome:
    rounds = []
    with run.screen.meter("rounds", total=run.scale.rounds) as meter:
        for _ in range(run.scale.rounds):
            rounds.append(await _round(run))
            meter.advance()
    samples = by_contender(rounds)
    what = f"{run.scale.cycle_messages:,} messages, batches of {BATCH}, durable, {TASKS} tasks"
    ours = samples["penstock"]
    best = _best(samples, [peer.name for peer in run.peers])
    if best is None:
        verdict = absent(what=what, unit=UNIT, ours=ours, reference_name="the best peer", bar=BAR)
        return Outcome(verdicts=(verdict,), samples=samples)
    verdict = judge_ratio(
        what=what,
        unit=UNIT,
        ours=ours,
        reference_name=f"best: {best}",
        reference=samples[best],
        bar=BAR,
        missing=bool(run.missing_peers),
    )
    return Outcome(verdicts=(verdict,), samples=samples, notes=_notes(run, samples))


def _best(samples: dict[str, list[float]], names: list[str]) -> str | None:
    return max(names, key=lambda name: median(samples[name]), default=None)


def _notes(run: Run, samples: dict[str, list[float]]) -> tuple[str, ...]:
    """What each peer did, and what the ratio would be had none of them used a transaction."""
    plain = [peer.name + CALL_BY_CALL for peer in run.peers]
    best = _best(samples, plain)
    notes = [
        f"{peer.name}: {median(samples[peer.name]):,.0f}/s at its best, "
        f"{median(samples[peer.name + CALL_BY_CALL]):,.0f}/s call by call"
        for peer in run.peers
    ]
    if best is not None:
        ratio = median(
            ours / other for ours, other in zip(samples["penstock"], samples[best], strict=True)
        )
        notes.append(f"{ratio:.1f} {TIMES} the best of them call by call ({best.split(',')[0]})")
    return tuple(notes)


async def _round(run: Run) -> dict[str, float]:
    """Everyone publishes a batch, receives it and acks it: the depth at which peers are best.

    Peers get a time rather than a count, because the slowest would need minutes; some of them
    slow down as they go on, so this too is in their favour.
    """
    batch = make_bodies(BATCH)
    slices = run.scale.slices
    seconds = run.scale.cycle_peer_seconds / slices
    with ExitStack() as stack, run.fresh_directory("penstock") as ours:
        async with open_store(ours, sync="always") as broker:
            await broker.create_queue(QUEUE)

            async def cycle() -> Sample:
                return await _cycle(broker, batch, messages=run.scale.cycle_messages // slices)

            contenders: dict[str, Slice] = {"penstock": cycle}
            for peer in run.peers:
                for name, cycling in (("", _at_best), (CALL_BY_CALL, _call_by_call)):
                    directory = stack.enter_context(run.fresh_directory(peer.name))
                    queue = stack.enter_context(closing(peer.open(directory)))
                    contenders[peer.name + name] = cycling(queue, batch, seconds)
            return await take_turns(contenders, slices=slices)


async def _cycle(broker: penstock.Broker, batch: list[bytes], *, messages: int) -> Sample:
    turns = iter(range(messages // len(batch)))
    start = perf_counter()

    async def worker() -> int:
        done = 0
        for _ in turns:
            await broker.publish(QUEUE, batch)
            done += await receive_and_ack(broker, limit=len(batch))
        return done

    done = sum(await asyncio.gather(*(worker() for _ in range(TASKS))))
    seconds = perf_counter() - start
    if done != messages:
        raise RuntimeError(f"acked {done} of {messages} messages published")
    return Sample(messages=done, seconds=seconds)


def _at_best(queue: Peer, batch: list[bytes], seconds: float) -> Slice:
    def cycle() -> int:
        queue.put_many(batch)
        return queue.receive_and_ack(len(batch))

    return repeated(cycle, seconds=seconds)


def _call_by_call(queue: Peer, batch: list[bytes], seconds: float) -> Slice:
    def cycle() -> int:
        for body in batch:
            queue.put(body)
        return sum(queue.receive_and_ack(1) for _ in batch)

    return repeated(cycle, seconds=seconds)


ROW = Row(name="cycle", what="publish → receive → ack", measure=measure)

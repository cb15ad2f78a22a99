"""Durable publish in batches, against a bare loop on the same disk."""

from __future__ import annotations

from benchmarks.engine.run import Run
from benchmarks.engine.scale import BATCH, BODY_BYTES
from benchmarks.engine.store import QUEUE, make_bodies, open_store, publish_count, publish_for
from benchmarks.harness.bar import at_least
from benchmarks.harness.disk import BareDisk, bytes_written
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.sample import Sample, repeated, take_turns
from benchmarks.harness.verdict import judge_ratio

TASKS = 16
BAR = at_least(0.8)


async def measure(run: Run) -> Outcome:
    rounds = []
    sizes = []
    with run.screen.meter("rounds", total=run.scale.rounds) as meter:
        for _ in range(run.scale.rounds):
            figures, size = await _round(run)
            rounds.append(figures)
            sizes.append(size)
            meter.advance()
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"batches of {BATCH}, {TASKS} tasks",
        unit="messages/s",
        ours=samples["penstock"],
        reference_name="write + fdatasync",
        reference=samples["bare disk"],
        bar=BAR,
    )
    note = (
        f"a batch is {sizes[-1]:,} bytes in the log, "
        f"{sizes[-1] / BATCH - BODY_BYTES:.1f} a message above its body; "
        "the reference writes as many"
    )
    return Outcome(verdicts=(verdict,), samples=samples, notes=(note,))


async def _round(run: Run) -> tuple[dict[str, float], int]:
    """The rates of one round, and the bytes that one of our batches takes in the log."""
    batch = make_bodies(BATCH)
    seconds = run.scale.slice_seconds
    with (
        run.fresh_directory("penstock") as ours,
        run.fresh_directory("disk") as bare,
        BareDisk(bare / "log") as disk,
    ):
        size = await _size_in_log(run, batch)
        block = b"\x5a" * size
        async with open_store(ours, sync="always") as broker:
            await broker.create_queue(QUEUE)
            await publish_for(broker, batch, tasks=TASKS, seconds=seconds)

            async def publish() -> Sample:
                return await publish_for(broker, batch, tasks=TASKS, seconds=seconds)

            def append() -> int:
                disk.append(block)
                return BATCH

            append()
            figures = await take_turns(
                {"penstock": publish, "bare disk": repeated(append, seconds=seconds)},
                slices=run.scale.slices,
            )
    return figures, size


async def _size_in_log(run: Run, batch: list[bytes]) -> int:
    """In the mode that writes nothing but records: no zeros ahead of them."""
    count = 1000
    with run.fresh_directory("size") as directory:
        async with open_store(directory, sync="never") as broker:
            await broker.create_queue(QUEUE)
            before = bytes_written()
            await publish_count(broker, batch, tasks=TASKS, messages=count * len(batch))
            return (bytes_written() - before) // count


ROW = Row(name="publish-batches", what="durable publish", measure=measure)

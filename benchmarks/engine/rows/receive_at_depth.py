"""Receive and ack at the head of a long backlog, against a short one."""

from __future__ import annotations

from benchmarks.engine.children.serve import Batches, Ready, ServeTask
from benchmarks.engine.process import Child
from benchmarks.engine.run import Run
from benchmarks.engine.scale import BATCH
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row, by_contender
from benchmarks.harness.verdict import judge_ratio

BAR = at_most(1.3)
TURN = 10
"""Batches that a store does before it is the other's turn."""


async def measure(run: Run) -> Outcome:
    """Each store has a process of its own, so that the large one's memory is its own burden."""
    deep = ServeTask(directory=str(run.backlog.directory), fill=0, loop=run.loop)
    rounds = []
    with run.fresh_directory("small") as small:
        shallow = ServeTask(directory=str(small), fill=run.scale.small_backlog, loop=run.loop)
        with (
            Child("benchmarks.engine.children.serve", deep) as ours,
            Child("benchmarks.engine.children.serve", shallow) as reference,
        ):
            for child in (ours, reference):
                child.hear(Ready)
                child.ask(TURN, Batches)
            with run.screen.meter("rounds", total=run.scale.rounds) as meter:
                for _ in range(run.scale.rounds):
                    rounds.append(_round(run, ours, reference))
                    meter.advance()
            ours.finish()
            reference.finish()
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"batches of {BATCH} at a backlog of {run.backlog.messages:,}",
        unit="ms/batch",
        ours=samples["long"],
        reference_name=f"at {run.scale.small_backlog:,}",
        reference=samples["short"],
        bar=BAR,
    )
    note = (
        f"the backlog was published in batches of 1,000 with sync never, "
        f"in {run.backlog.fill_seconds:.1f} s; everything here is measured with sync always"
    )
    return Outcome(verdicts=(verdict,), samples=samples, notes=(note,))


def _round(run: Run, ours: Child, reference: Child) -> dict[str, float]:
    """Milliseconds a batch of each, over turns of a few batches."""
    turns = run.scale.depth_batches // TURN
    seconds = {"long": 0.0, "short": 0.0}
    order = [("long", ours), ("short", reference)]
    for _ in range(turns):
        for name, child in order:
            seconds[name] += child.ask(TURN, Batches).seconds
        order.reverse()
    return {name: taken / turns / TURN * 1e3 for name, taken in seconds.items()}


ROW = Row(name="receive-at-depth", what="receive + ack", measure=measure)

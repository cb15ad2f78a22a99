"""What most rows are: batches of ours and of a peer, in turns, and the ratio of the two."""

from __future__ import annotations

from benchmarks.harness.bar import Bar
from benchmarks.harness.row import Outcome, by_contender
from benchmarks.harness.sample import Slice, take_turns
from benchmarks.harness.verdict import judge_ratio
from benchmarks.scale.run import Run
from benchmarks.scale.scale import BATCH

__all__ = ["beside"]


async def beside(run: Run, ours: Slice, name: str, peer: Slice, bar: Bar) -> Outcome:
    """``name`` is that of the peer."""
    contenders = {"penstock": ours, name: peer}
    rounds = [
        await take_turns(contenders, slices=run.scale.slices) for _ in range(run.scale.rounds)
    ]
    samples = by_contender(rounds)
    verdict = judge_ratio(
        what=f"batches of {BATCH}",
        unit="messages/s",
        ours=samples["penstock"],
        reference_name=name,
        reference=samples[name],
        bar=bar,
    )
    return Outcome(verdicts=(verdict,), samples=samples)

"""How reading grows with the number of ranges that a queue is cut into."""

from __future__ import annotations

from benchmarks.harness.verdict import judge_ratio
from benchmarks.spark.bench import Bench, timed
from benchmarks.spark.outcome import Outcome

_TASKS = (2, 4, 10)


def parallelism(bench: Bench) -> Outcome:
    """The session has two cores, so two tasks run at a time; no bar, but the curve of the docs."""
    found: dict[int, list[float]] = {tasks: [] for tasks in (1, *_TASKS)}
    timed(bench.source())
    for _ in range(bench.rounds):
        for tasks, rates in found.items():
            most = str(-(-bench.messages // tasks))
            seconds = timed(bench.source(maxRecordsPerPartition=most, minPartitions=str(tasks)))
            rates.append(bench.messages / seconds)
    return Outcome(
        tuple(
            judge_ratio(
                what=f"read in {tasks} tasks, two at a time",
                unit="rows/s",
                ours=found[tasks],
                reference_name="in one task",
                reference=found[1],
                bar=None,
            )
            for tasks in _TASKS
        ),
        {f"{tasks} tasks": rates for tasks, rates in found.items()},
    )

"""Reading a queue, with nothing done to the rows."""

from __future__ import annotations

from benchmarks.harness.bar import at_least, at_most
from benchmarks.harness.verdict import judge_ratio, judge_value
from benchmarks.spark.bench import Bench, timed
from benchmarks.spark.outcome import Outcome

# The JVM compiles what it has run often: each of the first reads is faster than the one before.
_WARM_UPS = 8


def source_to_noop(bench: Bench) -> Outcome:
    ours, native, cpu = [], [], []
    for _ in range(_WARM_UPS):
        timed(bench.source())
        timed(bench.spark.read.parquet(bench.parquet))
    for _ in range(bench.rounds):
        before = bench.server_cpu_seconds()
        ours.append(bench.messages / timed(bench.source()))
        cpu.append((bench.server_cpu_seconds() - before) * 1e6 / bench.messages)
        native.append(bench.messages / timed(bench.spark.read.parquet(bench.parquet)))
    return Outcome(
        (
            judge_ratio(
                what="read",
                unit="rows/s",
                ours=ours,
                reference_name="parquet to noop",
                reference=native,
                bar=at_least(0.5),
            ),
            judge_value(
                what="server CPU per million messages", unit="s", ours=cpu, bar=at_most(2, "s")
            ),
        ),
        {"ours": ours, "parquet": native, "server cpu s": cpu},
    )

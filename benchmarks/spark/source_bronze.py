"""A queue into bronze, beside parquet into parquet."""

from __future__ import annotations

import time

from benchmarks.harness.bar import at_least
from benchmarks.harness.verdict import judge_ratio
from benchmarks.spark.bench import FULL, Bench, timed
from benchmarks.spark.outcome import Outcome
from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.lake import Lake


def source_to_bronze(bench: Bench) -> Outcome:
    ours, native = [], []
    for turn in range(bench.rounds + 1):
        path = bench.fresh("bronze")
        options = {**bench.options, "subscribe": FULL, "subscription": f"bronze-{turn}"}
        began = time.perf_counter()
        land_stream(bench.spark, Lake(path), MESSAGES, options, once=True).awaitTermination()
        seconds = time.perf_counter() - began
        other = timed(bench.spark.read.parquet(bench.parquet), bench.fresh("copy.parquet"))
        if turn:
            ours.append(bench.messages / seconds)
            native.append(bench.messages / other)
    return Outcome(
        (
            judge_ratio(
                what="stream to bronze, checkpoint and all",
                unit="rows/s",
                ours=ours,
                reference_name="parquet to parquet",
                reference=native,
                bar=at_least(0.6),
            ),
        ),
        {"ours": ours, "parquet": native},
    )

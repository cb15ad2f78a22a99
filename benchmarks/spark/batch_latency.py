"""How long a small batch of a stream takes, beside Spark's own source."""

from __future__ import annotations

import threading
import time
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.harness.bar import at_most
from benchmarks.harness.verdict import judge_ratio
from benchmarks.spark.bench import Bench
from benchmarks.spark.outcome import Outcome

_BATCHES = 40


def batch_latency(bench: Bench) -> Outcome:
    """How long a batch of a few rows takes, apart from waiting for them."""
    ours, rate = [], []
    for turn in range(1 + bench.rounds):
        queue = f"small-{turn}"
        with bench.client() as client:
            client.create_queue(queue)
        stream = (
            bench.spark.readStream.format("penstock")
            .options(**bench.options, subscribe=queue, subscription="bench")
            .load()
        )
        ours.append(_batch_seconds(bench, stream, queue) * 1000)
        native = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        rate.append(_batch_seconds(bench, native, None) * 1000)
    # Both are a fifth slower in the first turn, in which the JVM compiles what they have in common.
    del ours[0], rate[0]
    return Outcome(
        (
            judge_ratio(
                what="p50 of a batch of 10 rows",
                unit="ms",
                ours=ours,
                reference_name="rate source",
                reference=rate,
                bar=at_most(1.3),
            ),
        ),
        {"ours": ours, "rate": rate},
    )


def _batch_seconds(bench: Bench, rows: DataFrame, queue: str | None) -> float:
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(bench.fresh("latency")))
        .start()
    )
    stop = threading.Event()
    feeder = threading.Thread(target=_feed, args=(bench, queue, stop))
    feeder.start()
    try:
        found = _durations(query, _BATCHES)
    finally:
        stop.set()
        feeder.join()
        query.stop()
    return median(found[_BATCHES // 4 :]) / 1000


def _feed(bench: Bench, queue: str | None, stop: threading.Event) -> None:
    if queue is None:
        return
    with bench.client() as client:
        while not stop.is_set():
            client.publish(queue, [b"x" * 256] * 10)
            stop.wait(0.02)


def _durations(query: StreamingQuery, count: int) -> list[float]:
    """Of so many batches that had rows, without the time that the source had nothing."""
    found: dict[int, float] = {}
    until = time.monotonic() + 300
    while len(found) < count and time.monotonic() < until and query.isActive:
        for each in query.recentProgress:
            if each.numInputRows:
                found[each.batchId] = each.durationMs["triggerExecution"]
        time.sleep(0.1)
    return [found[number] for number in sorted(found)]

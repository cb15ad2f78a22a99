"""The rows of the benchmark."""

from __future__ import annotations

from benchmarks.spark.batch_latency import batch_latency
from benchmarks.spark.idle import idle_stream
from benchmarks.spark.outcome import Row
from benchmarks.spark.parallelism import parallelism
from benchmarks.spark.push_beside import push_beside_reads
from benchmarks.spark.sink import sink
from benchmarks.spark.source_bronze import source_to_bronze
from benchmarks.spark.source_noop import source_to_noop
from benchmarks.spark.ten_times import ten_times_more

ROWS = (
    Row("source-noop", "source to noop", source_to_noop),
    Row("source-bronze", "source to bronze", source_to_bronze),
    Row("sink", "rows to a queue", sink),
    Row("batch-latency", "micro-batch latency", batch_latency),
    Row("idle", "an idle stream", idle_stream),
    Row("push-beside", "pushes beside a large read", push_beside_reads),
    Row("parallelism", "a queue in several tasks", parallelism),
    Row("ten-times", "ten times as many messages", ten_times_more),
)

"""The rows of the table, in the order in which they run. One file each."""

from __future__ import annotations

from benchmarks.fanout.rows import dead_endpoint, diamond, latency, throughput, topics
from benchmarks.fanout.run import Run
from benchmarks.harness.row import Row

ROWS: tuple[Row[Run], ...] = (
    latency.ROW,
    throughput.ROW,
    topics.ROW,
    diamond.ROW,
    dead_endpoint.ROW,
)

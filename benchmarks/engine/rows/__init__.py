"""The rows of the table, in the order in which they run. One file each."""

from __future__ import annotations

from benchmarks.engine.rows import (
    cycle,
    diamond,
    memory_at_depth,
    publish_batches,
    publish_singles,
    receive_at_depth,
    start,
    topics,
)
from benchmarks.engine.run import Run
from benchmarks.harness.row import Row

ROWS: tuple[Row[Run], ...] = (
    publish_batches.ROW,
    publish_singles.ROW,
    cycle.ROW,
    receive_at_depth.ROW,
    memory_at_depth.ROW,
    start.ROW,
    topics.ROW,
    diamond.ROW,
)

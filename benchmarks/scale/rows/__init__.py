"""The rows of the table, in the order in which they run. One file each."""

from __future__ import annotations

from benchmarks.harness.row import Row
from benchmarks.scale.rows import (
    archive,
    memory,
    publish,
    receive,
    receive_at_depth,
    round_trips,
)
from benchmarks.scale.run import Run

ROWS: tuple[Row[Run], ...] = (
    publish.ROW,
    receive.ROW,
    round_trips.ROW,
    receive_at_depth.ROW,
    memory.ROW,
    archive.ROW,
)

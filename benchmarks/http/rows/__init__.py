"""The rows of the table, in the order in which they run. One file each."""

from __future__ import annotations

from benchmarks.harness.row import Row
from benchmarks.http.rows import auth, cycle, latency, publish, push, send_message, worker
from benchmarks.http.run import Run

ROWS: tuple[Row[Run], ...] = (
    push.ROW,
    latency.ROW,
    cycle.ROW,
    publish.ROW,
    worker.ROW,
    send_message.ROW,
    auth.ROW,
)

"""What a stream without news asks."""

from __future__ import annotations

import time

from benchmarks.harness.bar import at_most
from benchmarks.harness.verdict import judge_value
from benchmarks.spark.bench import Bench
from benchmarks.spark.outcome import Outcome

_IDLE_SECONDS = 10


def idle_stream(bench: Bench) -> Outcome:
    with bench.client() as client:
        client.create_queue("idle")
    query = (
        bench.spark.readStream.format("penstock")
        .options(**bench.options, subscribe="idle", subscription="bench")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(bench.fresh("idle")))
        .start()
    )
    time.sleep(5)
    before = _requests(bench)
    time.sleep(_IDLE_SECONDS)
    rate = (_requests(bench) - before - 1) / _IDLE_SECONDS
    query.stop()
    bar = at_most(2, "requests/s")
    return Outcome(
        (judge_value(what="requests", unit="requests/s", ours=[rate], bar=bar),), {"ours": [rate]}
    )


def _requests(bench: Bench) -> int:
    """As the server's own log has them, one line each."""
    return (bench.root / "output.log").read_bytes().count(b"\n")

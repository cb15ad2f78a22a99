"""Ten times as many messages."""

from __future__ import annotations

from benchmarks.harness.bar import at_most
from benchmarks.harness.verdict import judge_ratio
from benchmarks.spark.bench import Bench, timed
from benchmarks.spark.outcome import Outcome


def ten_times_more(bench: Bench) -> Outcome:
    """The same read of ten times as many messages; what the server's memory does meanwhile."""
    with bench.client() as client:
        client.create_queue("large", retention_seconds=7 * 86400)
    for _ in range(10):
        bench.publish(bench.rows(bench.messages), "large")
    one, ten = [], []
    timed(bench.source())
    before = bench.server_memory_bytes()
    for _ in range(bench.rounds):
        one.append(timed(bench.source()))
        ten.append(timed(bench.source(subscribe="large")))
    grown = bench.server_memory_bytes() / before
    with bench.client() as client:
        client.delete_queue("large")
    return Outcome(
        (
            judge_ratio(
                what="reading ten times as many",
                unit="s",
                ours=ten,
                reference_name="reading them once",
                reference=one,
                bar=at_most(11),
            ),
            judge_ratio(
                what="server memory after it",
                unit="bytes",
                ours=[grown * before],
                reference_name="before it",
                reference=[before],
                bar=at_most(1.2),
            ),
        ),
        {"ten": ten, "one": one},
    )

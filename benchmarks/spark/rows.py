"""The rows of the benchmark, in the order of the issue's table."""

from __future__ import annotations

import asyncio
import base64
import http.client
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from benchmarks.engine.bar import at_least, at_most
from benchmarks.engine.verdict import Verdict, judge_ratio, judge_value
from benchmarks.spark.bench import FULL, LOGIN, Bench, timed
from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.lake import Lake

_SINGLES = 2_000
_BATCHES = 40
_IDLE_SECONDS = 10
_PUSHES_SECONDS = 8


class Outcome(NamedTuple):
    verdicts: tuple[Verdict, ...]
    samples: dict[str, list[float]]
    notes: tuple[str, ...] = ()


class Row(NamedTuple):
    name: str
    what: str
    measure: Callable[[Bench], Outcome]


def source_to_noop(bench: Bench) -> Outcome:
    ours, native, cpu = [], [], []
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


def sink(bench: Bench) -> Outcome:
    ours, singles, engine = [], [], []
    rows = bench.rows(bench.messages).cache()
    rows.count()
    for turn in range(bench.rounds):
        with bench.client() as client:
            client.create_queue(f"sink-{turn}")
            client.create_queue(f"singles-{turn}")
        ours.append(bench.messages / bench.publish(rows, f"sink-{turn}"))
        singles.append(_singles(bench, f"singles-{turn}"))
        engine.append(asyncio.run(_engine(bench, bench.fresh("engine"))))
        with bench.client() as client:
            client.delete_queue(f"sink-{turn}")
    rows.unpersist()
    return Outcome(
        (
            judge_ratio(
                what="durable",
                unit="messages/s",
                ours=ours,
                reference_name="one request a message",
                reference=singles,
                bar=at_least(100),
            ),
            judge_ratio(
                what="durable",
                unit="messages/s",
                ours=ours,
                reference_name="the engine, batches of 10,000",
                reference=engine,
                bar=at_least(0.5),
            ),
        ),
        {"ours": ours, "singles": singles, "engine": engine},
    )


def _headers() -> dict[str, str]:
    login = base64.b64encode(":".join(LOGIN.values()).encode()).decode()
    return {"Authorization": f"Basic {login}", "Content-Type": "application/octet-stream"}


def _singles(bench: Bench, queue: str) -> float:
    """Messages a second, one after the other, on one kept connection."""
    headers = _headers()
    connection = http.client.HTTPConnection("127.0.0.1", bench.address.port)
    began = time.perf_counter()
    for _ in range(_SINGLES):
        connection.request("POST", f"/v1/queues/{queue}/messages", b"x" * 256, headers)
        connection.getresponse().read()
    connection.close()
    return _SINGLES / (time.perf_counter() - began)


async def _engine(bench: Bench, directory: Path) -> float:
    bodies = [b"%0256d" % number for number in range(10_000)]
    async with penstock.open(directory) as broker:
        await broker.create_queue("bench")
        began = time.perf_counter()
        for _ in range(max(1, bench.messages // len(bodies))):
            await broker.publish("bench", bodies)
        seconds = time.perf_counter() - began
    shutil.rmtree(directory)
    return bench.messages / seconds


def batch_latency(bench: Bench) -> Outcome:
    """How long a batch of a few rows takes, apart from waiting for them."""
    ours, rate = [], []
    for turn in range(bench.rounds):
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


def push_beside_reads(bench: Bench) -> Outcome:
    """p99 of single publishes, alone and while a million messages are read."""
    with bench.client() as client:
        client.create_queue("beside")
    alone, beside = [], []
    for _ in range(bench.rounds):
        alone.append(_push_p99(bench, threading.Event(), seconds=_PUSHES_SECONDS))
        done = threading.Event()
        reader = threading.Thread(target=_read_all, args=(bench, done))
        reader.start()
        beside.append(_push_p99(bench, done, seconds=120))
        reader.join()
    return Outcome(
        (
            judge_ratio(
                what="p99 of a push while a million messages are read",
                unit="ms",
                ours=beside,
                reference_name="nothing is read",
                reference=alone,
                bar=at_most(2),
            ),
        ),
        {"beside": beside, "alone": alone},
    )


def _read_all(bench: Bench, done: threading.Event) -> None:
    try:
        timed(bench.source())
    finally:
        done.set()


def _push_p99(bench: Bench, done: threading.Event, *, seconds: float) -> float:
    headers = _headers()
    connection = http.client.HTTPConnection("127.0.0.1", bench.address.port)
    took = []
    until = time.monotonic() + seconds
    while not done.is_set() and time.monotonic() < until:
        began = time.perf_counter()
        connection.request("POST", "/v1/queues/beside/messages", b"x" * 256, headers)
        connection.getresponse().read()
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.002)
    connection.close()
    return quantiles(took, n=100)[98]


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


ROWS = (
    Row("source-noop", "source to noop", source_to_noop),
    Row("source-bronze", "source to bronze", source_to_bronze),
    Row("sink", "rows to a queue", sink),
    Row("batch-latency", "micro-batch latency", batch_latency),
    Row("idle", "an idle stream", idle_stream),
    Row("push-beside", "pushes beside a large read", push_beside_reads),
    Row("ten-times", "ten times as many messages", ten_times_more),
)

"""Rows into a queue, beside single requests and the engine itself."""

from __future__ import annotations

import asyncio
import http.client
import shutil
import time
from pathlib import Path

import penstock
from benchmarks.harness.bar import at_least
from benchmarks.harness.verdict import judge_ratio
from benchmarks.spark.bench import Bench, headers
from benchmarks.spark.outcome import Outcome

_SINGLES = 2_000


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


def _singles(bench: Bench, queue: str) -> float:
    """Messages a second, one after the other, on one kept connection."""
    sent = headers()
    connection = http.client.HTTPConnection("127.0.0.1", bench.address.port)
    began = time.perf_counter()
    for _ in range(_SINGLES):
        connection.request("POST", f"/v1/queues/{queue}/messages", b"x" * 256, sent)
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

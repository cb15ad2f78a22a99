"""Drivers and servers are killed at random moments; every message is in bronze exactly once.

One round by default, to keep the suite short. `PENSTOCK_SPARK_ROUNDS=10` is the whole proof.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.pipeline.lake import Lake
from tests.client.server import Server
from tests.spark.driver import drive
from tests.spark.helpers import OPTIONS, admin

ROUNDS = int(os.environ.get("PENSTOCK_SPARK_ROUNDS", "1"))
SEED = int(os.environ.get("PENSTOCK_SPARK_SEED", "20301"))
LIMIT_SECONDS = 240


class Load:
    """Publishes numbered messages until it is stopped, through every crash of the server."""

    def __init__(self, url: str, queue: str) -> None:
        self.accepted: dict[int, bytes] = {}
        self.attempted: set[bytes] = set()
        self._url = url
        self._queue = queue
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        with admin(self._url, timeout_seconds=5) as client:
            while not self._stop.is_set():
                bodies = [b"message %d" % (number + at) for at in range(20)]
                number += 20
                self.attempted.update(bodies)
                try:
                    published = client.publish(self._queue, bodies)
                except (PenstockError, OSError):
                    continue  # whether it was stored is not known
                for message, body in zip(published, bodies, strict=True):
                    self.accepted[message.index] = body
                self._stop.wait(0.2)


class Driver:
    """A driver in a process of its own. It is killed at the end of the block, if not before."""

    def __init__(
        self,
        command: dict[str, Any],
        log: Path,
        *,
        program: str = "tests.spark.driver",
        python: str = sys.executable,
    ) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", program, json.dumps(command)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        # The JVM and its Python workers are in the session that the driver has begun.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=30)

    def wait_for(self, word: str, count: int = 1) -> str:
        """The line with which the driver has said it so often; fails when it ends before."""
        assert self._process.stdout is not None
        timer = threading.Timer(LIMIT_SECONDS, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                count -= line.startswith(word)
                if not count:
                    return line
        finally:
            timer.cancel()
        said = self._log.read_text(errors="replace")[-4000:]
        raise AssertionError(f"the driver ended before it said {word!r}: {said}")


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Server]:
    with Server(str(tmp_path / "data"), tmp_path / "log") as server:
        yield server


def test_every_accepted_message_is_in_bronze_exactly_once_through_every_kill(
    spark: SparkSession, mortal: Server, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    lake = Lake(tmp_path / "lake")
    with admin(mortal.url) as client:
        client.create_queue("source")
        client.create_queue("target")
    command: dict[str, Any] = {
        "master": "local[2]",
        "lake": str(lake.root),
        "options": {"url": mortal.url, **OPTIONS},
        "queue": "source",
        "target": "target",
        "once": False,
    }

    with Load(mortal.url, "source") as load:
        for turn in range(ROUNDS):
            with Driver(command, tmp_path / "driver.log") as driver:
                driver.wait_for("landed", rng.randint(1, 3))
                if turn == 0 or rng.random() < 0.7:
                    mortal.end(signal.SIGKILL)
                    mortal.start()
                    driver.wait_for("landed", rng.randint(1, 2))
                # Anywhere in a batch: it takes about half a second.
                threading.Event().wait(rng.random() / 2)
    # The last driver, in this process: it takes up what the killed ones have left.
    drive(spark, {**command, "once": True})

    with admin(mortal.url) as client:
        head = client.queue_stats("source").next_index
        target = client.queue_stats("target").next_index
        copied = Counter[bytes]()
        at = 0
        while page := client.read("target", at, 1000):
            copied.update(message.body for message in page)
            at += len(page)
        floors = {each.name: each for each in client.queue_stats("source").subscriptions}
    by_arrow = ds.dataset(lake.table("bronze"), partitioning="hive").to_table(["index", "body"])
    by_spark = spark.read.parquet(str(lake.table("bronze"))).select("index", "body").collect()

    rows = dict(zip(by_arrow["index"].to_pylist(), by_arrow["body"].to_pylist(), strict=True))
    # Exactly once, as Arrow sees the files and as Spark does.
    assert sorted(by_arrow["index"].to_pylist()) == list(range(head))
    assert sorted(row["index"] for row in by_spark) == list(range(head))
    # Every accepted one is there as it was, and nothing that nobody sent.
    assert {index: rows.get(index) for index in load.accepted} == load.accepted
    assert set(rows.values()) <= load.attempted
    # The sink: the same messages, each once.
    assert copied == Counter(rows.values())
    assert target == head
    assert floors["bronze"].lowest_unacked_index == head
    assert floors["copy"].lowest_unacked_index == head

"""Drivers and servers are killed with `kill -9`; every message is in bronze exactly once.

Of ten rounds half end in a driver that is killed at a step of a batch: it is held there, so that no
round can miss it. The others end at random moments, one of them soon after the start. A round that
ends finds the next driver waiting, with its Spark started, and has it go at once.

`PENSTOCK_SPARK_SEED` is another plan of kills. A failure prints the plan that it had.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.pipeline.lake import Lake
from tests.client.server import Server
from tests.spark.driver import COPY_STEPS, LANDING_STEPS, copy_checkpoint, drive
from tests.spark.helpers import OPTIONS, admin
from tests.spark.holds import Holds
from tests.spark.leftovers import (
    IDLE,
    PLANNED,
    expected,
    is_under_way,
    landing_step,
    newest,
    offset,
)
from tests.spark.process import Driver
from tests.spark.quick import archived, make_archive

BRONZE, COPY = "bronze", "copy"
SEED = int(os.environ.get("PENSTOCK_SPARK_SEED", "20301"))


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


@dataclass(frozen=True, kw_only=True)
class Round:
    """When a driver is killed, and the server.

    Once ``commits`` batches of ``query`` are done, the driver comes to ``step``, or ``seconds`` go
    by, and it is killed. The server is killed ``before``, and the driver has to live through it; or
    ``first`` or ``last``, right before the driver or after it, and the next one finds it away.
    """

    query: str
    step: str
    commits: int
    seconds: float
    server: str


START, ANYWHERE = "start", "anywhere"
STEPS = (*LANDING_STEPS, *COPY_STEPS, START, *[ANYWHERE] * 4)
SERVERS = (*["before"] * 4, *["first"] * 2, "last", *["alive"] * 3)


def plan(rng: random.Random) -> list[Round]:
    steps, servers = rng.sample(STEPS, len(STEPS)), rng.sample(SERVERS, len(SERVERS))
    queries = dict.fromkeys(LANDING_STEPS, BRONZE) | dict.fromkeys(COPY_STEPS, COPY)
    return [
        Round(
            query=queries.get(step) or rng.choice([BRONZE, COPY]),
            step=step,
            commits=rng.randint(1, 3),
            # A start takes some seconds, and a batch about half of one.
            seconds=round(rng.random() * (5 if step == START else 0.5), 3),
            server=server,
        )
        for step, server in zip(steps, servers, strict=True)
    ]


class Copies:
    """What the sink has published so far."""

    def __init__(self, url: str) -> None:
        self.bodies = Counter[bytes]()
        self.count = 0
        self._url = url

    def read(self) -> None:
        """Fails if there is one twice."""
        with admin(self._url) as client:
            while page := client.read("target", self.count, 1000):
                self.bodies.update(message.body for message in page)
                self.count += len(page)
        assert [body for body, times in self.bodies.items() if times > 1] == []


class Scene:
    """A server under load, and the driver of the moment on one lake."""

    def __init__(self, server: Server, load: Load, lake: Lake, holds: Holds) -> None:
        self._server = server
        self._load = load
        self._lake = lake
        self._holds = holds
        self._checkpoints = {BRONZE: Path(lake.checkpoint("bronze")), COPY: copy_checkpoint(lake)}
        self.copies = Copies(server.url)

    def play(self, driver: Driver, given: Round) -> tuple[str, str]:
        """To the end of the driver; what that has interrupted in bronze and in the copy."""
        if not self._server.is_running:
            self._server.start()
        if given.step != START:
            self._wait_for_commits(driver, given.query, given.commits)
        if given.server == "before":
            self._kill_server(given)
            self._server.start()
            if given.step != START:
                # The first may be one that it had read before; of the second it has asked since.
                self._wait_for_commits(driver, given.query, 2)
        if given.step in (START, ANYWHERE):
            threading.Event().wait(given.seconds)
        else:
            self._holds.arm(given.step)
            driver.wait_until(lambda: self._holds.is_reached(given.step), given.step)
        self.copies.read()
        if given.server == "first":
            self._server.end(signal.SIGKILL)
        driver.kill()
        if given.server == "last":
            self._server.end(signal.SIGKILL)
        self._holds.disarm()
        self.check_bronze()
        return landing_step(self._lake, "source"), self._copy_step()

    def _kill_server(self, given: Round) -> None:
        threading.Event().wait(given.seconds)
        self._server.end(signal.SIGKILL)

    def _wait_for_commits(self, driver: Driver, query: str, count: int) -> None:
        checkpoint = self._checkpoints[query]
        wanted = newest(checkpoint, "commits") + count
        driver.wait_until(lambda: newest(checkpoint, "commits") >= wanted, f"batch {wanted}")

    def _copy_step(self) -> str:
        checkpoint = self._checkpoints[COPY]
        if not is_under_way(checkpoint):
            return IDLE
        is_published = self.copies.count > offset(checkpoint, "source", "commits")
        return "published" if is_published else PLANNED

    def check_bronze(self) -> dict[int, bytes]:
        """Every reader sees all that is landed and nothing twice, also right after a kill."""
        table = self._lake.table("bronze")
        if not table.exists():
            assert expected(self._lake, "source") == []
            return {}
        rows = ds.dataset(table, partitioning="hive").to_table(["index", "body"])
        found = dict(zip(rows["index"].to_pylist(), rows["body"].to_pylist(), strict=True))
        assert sorted(rows["index"].to_pylist()) == expected(self._lake, "source")
        # Each as it was sent, and nothing that nobody has sent.
        accepted = self._load.accepted.copy()
        assert [index for index, body in found.items() if accepted.get(index, body) != body] == []
        assert set(found.values()) <= self._load.attempted
        return found


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Server]:
    with Server(str(tmp_path / "data"), tmp_path / "log") as server:
        yield server


def test_every_accepted_message_is_in_bronze_exactly_once_through_every_kill(
    spark: SparkSession, archive: Path, mortal: Server, tmp_path: Path
) -> None:
    make_archive(archive)
    lake, holds = Lake(tmp_path / "lake"), tmp_path / "holds"
    with admin(mortal.url) as client:
        client.create_queue("source")
        client.create_queue("target")
    options = {"url": mortal.url, **OPTIONS}
    command: dict[str, Any] = {
        "master": "local[2]",
        "lake": str(lake.root),
        "options": {**options, "minPartitions": "2"},
        "write_options": options,
        "queue": "source",
        "target": "target",
        "once": False,
    }
    mortals = {**command, "holds": str(holds), "settings": archived(archive)}
    rounds, interrupted = plan(random.Random(SEED)), []

    print(f"seed {SEED}")
    with ExitStack() as drivers, Load(mortal.url, "source") as load:
        scene = Scene(mortal, load, lake, Holds(holds))

        def start(files: int) -> Driver:
            command = {**mortals, "bronze_options": {"minPartitions": str(files)}}
            return drivers.enter_context(Driver(command, tmp_path / "driver.log"))

        # Two files a batch or more, so that it can be in its place by half; and never as many as
        # before, so that of a batch that is run again only the log can tell what is landed.
        waiting = start(2)
        for number, each in enumerate(rounds, 1):
            print(f"round {number}: {each}")
            driver = waiting
            driver.go()
            if number < len(rounds):
                waiting = start(2 + number % 2)
            interrupted.append(scene.play(driver, each))
            print(f"interrupted {interrupted[-1]}")
            assert each.step in (START, ANYWHERE, *interrupted[-1])
    if not mortal.is_running:
        mortal.start()
    # The last driver, in this process: it takes up what the killed ones have left.
    drive(spark, {**command, "bronze_options": {"minPartitions": "1"}, "once": True})

    rows = scene.check_bronze()
    scene.copies.read()
    by_spark = spark.read.parquet(str(lake.table("bronze"))).select("index", "body").collect()
    with admin(mortal.url) as client:
        stats = client.queue_stats("source")
        target = client.queue_stats("target").next_index
    head = stats.next_index
    floors = {each.name: each.lowest_unacked_index for each in stats.subscriptions}
    # Exactly once, as Arrow sees the files and as Spark does.
    assert sorted(rows) == list(range(head))
    assert sorted((row["index"], bytes(row["body"])) for row in by_spark) == sorted(rows.items())
    # Every accepted one is there as it was.
    assert {index: rows.get(index) for index in load.accepted} == load.accepted
    # The sink: the same messages, each once.
    assert scene.copies.bodies == Counter(rows.values())
    assert target == head
    assert (floors["bronze"], floors["copy"]) == (head, head)
    # Each kind of kill has met a batch at its step.
    bronze, copy = zip(*interrupted, strict=True)
    assert set(LANDING_STEPS) <= set(bronze)
    assert set(COPY_STEPS) <= set(copy)

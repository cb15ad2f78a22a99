"""What happened to the messages of a queue in Redis, as a stream of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.client.server import Server
from tests.redis_server import redis_url, unique_prefix, with_prefix
from tests.spark.helpers import OPTIONS, World, admin, run_available


@pytest.fixture
def redis_world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    store = with_prefix(redis_url(), unique_prefix(tmp_path))
    with (
        Server("memory:", tmp_path / "log", PENSTOCK_STORE=store) as server,
        admin(server.url) as client,
    ):
        yield World(spark, client, {"url": server.url, **OPTIONS})


def test_each_event_is_a_row_once(redis_world: World, tmp_path: Path) -> None:
    world = redis_world
    world.client.create_queue("told", events=True)
    world.publish("told", 20)
    world.client.ack("told", world.client.receive("told", limit=5))
    rows = world.stream(subscribe="told", stream="events", startingOffsets="earliest")
    run_available(rows, tmp_path)
    found = world.spark.read.parquet(str(tmp_path / "out")).select("event", "index").collect()
    expected = [("published", index) for index in range(20)]
    expected += [(event, index) for event in ("acked", "delivered") for index in range(5)]
    assert sorted((row["event"], row["index"]) for row in found) == sorted(expected)

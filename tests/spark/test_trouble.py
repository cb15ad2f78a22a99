"""What may happen to a stream between two runs, or in the middle of one: how it goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.client import Client
from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.lake import Lake
from penstock.spark.fetch import Range, fetch
from penstock.spark.options import read_options
from penstock.spark.schema import Shaper, read_schema
from penstock.spark.stream_reader import PenstockStreamReader
from penstock.spark.versions import ReadAllAvailable
from tests.client.server import Server
from tests.spark.clocked import ClockedServer, clocked_server
from tests.spark.helpers import OPTIONS, World, admin

DAY_SECONDS = 86_400


@pytest.fixture
def clocked() -> Iterator[ClockedServer]:
    with clocked_server() as server:
        yield server


def moment(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns / 1e9, UTC)


def land(spark: SparkSession, lake: Lake, **options: str) -> None:
    given = {"subscription": "bronze", **options}
    land_stream(spark, lake, MESSAGES, given, once=True).awaitTermination()


def landed(lake: Lake) -> list[tuple[str, int]]:
    rows = ds.dataset(lake.table("bronze"), format="parquet", partitioning="hive").to_table()
    return sorted(zip(rows["queue"].to_pylist(), rows["index"].to_pylist(), strict=True))


def test_a_token_that_expires_ends_the_stream_and_a_new_one_goes_on(
    spark: SparkSession, clocked: ClockedServer, lake: Lake
) -> None:
    with admin(clocked.url) as client:
        client.create_queue("orders")
        client.publish("orders", [b"a", b"b"])
        token = client.log_in("admin", "adminpassword")
        land(spark, lake, url=clocked.url, subscribe="orders", token=token)
        client.publish("orders", [b"c"])

        # When the token's day is over
        clocked.ahead_seconds = 2 * DAY_SECONDS
        with pytest.raises(PySparkException, match=r"unauthorized: .*get a new one.*checkpoint"):
            land(spark, lake, url=clocked.url, subscribe="orders", token=token)
        assert landed(lake) == [("orders", 0), ("orders", 1)]

        renewed = client.log_in("admin", "adminpassword")
        land(spark, lake, url=clocked.url, subscribe="orders", token=renewed)

    assert landed(lake) == [("orders", 0), ("orders", 1), ("orders", 2)]


@pytest.mark.parametrize("ahead_days", [-3, 3])
def test_days_and_times_are_those_of_the_server_whatever_spark_s_clock_says(
    spark: SparkSession, lake: Lake, ahead_days: int
) -> None:
    with clocked_server(ahead_days * DAY_SECONDS) as server, admin(server.url) as client:
        client.create_queue("orders")
        client.publish("orders", [b"a", b"b"])
        created = client.read("orders")[0].created_at

        land(spark, lake, url=server.url, **OPTIONS, subscribe="orders")

        [stats] = [s for s in client.queue_stats("orders").subscriptions if s.name == "bronze"]
        is_skewed = abs(created - moment(time.time_ns())) > timedelta(days=2)
    rows = ds.dataset(lake.table("bronze"), format="parquet", partitioning="hive").to_table()
    assert is_skewed
    assert set(rows["day"].to_pylist()) == {created.date().isoformat()}
    assert rows["created_at"].to_pylist() == [created, created]
    assert stats.lowest_unacked_index == 2


def test_a_moment_is_compared_with_the_server_s_clock(clocked: ClockedServer) -> None:
    future = moment(clocked.now_ns()) + timedelta(days=2)
    clocked.ahead_seconds = 3 * DAY_SECONDS
    with admin(clocked.url) as client:
        client.create_queue("orders")
        client.publish("orders", [b"a"])
    given = {
        "url": clocked.url,
        **OPTIONS,
        "subscribe": "orders",
        "subscription": "stream",
        # Of Spark's clock this is the future; the server took the message after it.
        "startingOffsets": future.isoformat(),
    }
    checked = read_options(given, "stream")
    reader = PenstockStreamReader(checked, read_schema(checked))

    start = reader.initialOffset()

    assert start == {"orders": 0}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"orders": 1}


def test_a_server_that_was_away_is_waited_for_and_then_named_and_the_next_run_goes_on(
    spark: SparkSession, tmp_path: Path, lake: Lake
) -> None:
    with Server(str(tmp_path / "data"), tmp_path / "log") as server:
        options = {"url": server.url, **OPTIONS, "retrySeconds": "0.5", "subscribe": "orders"}
        with admin(server.url) as client:
            client.create_queue("orders")
            client.publish("orders", [b"a"])
        land(spark, lake, **options)
        with admin(server.url) as client:
            client.publish("orders", [b"b"])

        server.end(signal.SIGKILL)
        with pytest.raises(PySparkException, match=r"could not do it for 0\.5 seconds"):
            land(spark, lake, **options)
        server.start()
        land(spark, lake, **options)

    assert landed(lake) == [("orders", 0), ("orders", 1)]


def test_a_task_that_is_slower_than_the_patience_with_a_server_goes_on_after_a_restart(
    tmp_path: Path,
) -> None:
    with Server(str(tmp_path / "data"), tmp_path / "log") as server:
        given = {"url": server.url, **OPTIONS, "retrySeconds": "2", "subscribe": "orders"}
        options = read_options(given, "batch")
        with admin(server.url) as client:
            client.create_queue("orders")
            for _ in range(40):
                client.publish("orders", [b"x" * 1000] * 1000)
        # Given a task that has begun to read
        batches = fetch(Range("orders", 0, 40_000), options, Shaper(read_schema(options)))
        rows = next(batches).num_rows
        # When it works for longer than that on its first rows, while the server is restarted
        server.end(signal.SIGKILL)
        server.start()
        time.sleep(2.1)
        # Then it reads the others
        assert rows + sum(batch.num_rows for batch in batches) == 40_000


def test_another_pattern_after_a_restart_goes_on_with_what_it_matches(
    world: World, client: Client, queue: str, lake: Lake
) -> None:
    other = f"{queue}-b"
    client.create_queue(other)
    world.publish(queue, 2)
    world.publish(other, 3)
    land(world.spark, lake, **world.options, subscribePattern=queue)
    world.publish(queue, 1, first=2)

    land(world.spark, lake, **world.options, subscribePattern=f"{queue}.*")
    land(world.spark, lake, **world.options, subscribePattern=other)

    assert landed(lake) == [*((queue, n) for n in range(3)), *((other, n) for n in range(3))]
    assert world.floor(queue, "bronze") == 3
    assert world.floor(other, "bronze") == 3

"""What the tests of the format have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client import Client
from penstock.pipeline.gold import gold_path
from penstock.pipeline.lake import Lake
from penstock.spark.versions import start_to_the_end

OPTIONS = {"username": "admin", "password": "adminpassword", "retrySeconds": "5"}

# For a few rows it costs more to compile than to compute.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def admin(url: str, timeout_seconds: float = 30.0) -> Client:
    return Client(url, username="admin", password="adminpassword", timeout_seconds=timeout_seconds)


class World(NamedTuple):
    """Spark, a client of the server, and the options that lead Spark to it."""

    spark: SparkSession
    client: Client
    options: dict[str, str]

    def read(self, **options: str) -> DataFrame:
        return self.spark.read.format("penstock").options(**{**self.options, **options}).load()

    def stream(self, **options: str) -> DataFrame:
        every = {**self.options, "subscription": "stream", **options}
        return self.spark.readStream.format("penstock").options(**every).load()

    def publish(self, queue: str, count: int, *, first: int = 0) -> None:
        bodies = [f"body {number}".encode() for number in range(first, first + count)]
        for at in range(0, count, 10_000):
            self.client.publish(queue, bodies[at : at + 10_000])

    def floor(self, queue: str, subscription: str = "stream") -> int:
        stats = {each.name: each for each in self.client.queue_stats(queue).subscriptions}
        return stats[subscription].lowest_unacked_index


def run_available(rows: DataFrame, directory: Path, name: str = "run") -> StreamingQuery:
    """To the end of what there is, into parquet files below the directory."""
    query = start_to_the_end(
        rows.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / name))
    )
    query.awaitTermination()
    return query


def indexes(rows: DataFrame) -> list[int]:
    return sorted(row["index"] for row in rows.select("index").collect())


def figures(lake: Lake, table: str) -> list[dict[str, Any]]:
    """A table of gold, as any reader of parquet files sees it."""
    place = gold_path(lake, table)
    if not place.exists():
        return []
    rows = ds.dataset(place, format="parquet", partitioning="hive").to_table()
    found: list[dict[str, Any]] = rows.to_pylist()
    return found

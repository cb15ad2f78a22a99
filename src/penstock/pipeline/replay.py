"""Replay: publish messages from bronze that meet a condition to a queue again."""

from __future__ import annotations

import hashlib

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from penstock.errors import InvalidArgument
from penstock.pipeline.bronze import MESSAGES
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.queries import reason_of, told_in_one_sentence
from penstock.pipeline.tables import read_table

__all__ = ["Replay"]

# Rows are given to this many tasks, by ranges of this many indexes.
_TASKS = 8
_SPAN = 65_536


class Replay:
    """``where`` is a SQL condition over the columns of bronze. Raises `InvalidArgument`."""

    def __init__(self, spark: SparkSession, lake: Lake, where: str, queue: str) -> None:
        self._entry = Landing(lake, MESSAGES.table).last().number
        if not self._entry:
            raise InvalidArgument(f"there is nothing in bronze at {lake.root}: run the pipeline")
        self._where = where
        self._queue = queue
        self._chosen: list[Row] | None = None
        try:
            table = read_table(spark, lake, MESSAGES.table)
            self._rows = table.where(F.expr(where))
        except PySparkException as exc:
            raise InvalidArgument(
                f"--where is not a condition over bronze: {reason_of(exc)}"
            ) from exc

    def count(self) -> dict[str, int]:
        """How many messages match, by queue. Raises `QueryFailed`."""
        with told_in_one_sentence("the messages cannot be counted"):
            mark = F.bit_xor(F.xxhash64("index")).alias("mark")
            every = self._rows.groupBy("queue").agg(F.count("*").alias("count"), mark)
            self._chosen = every.orderBy("queue").collect()
        return {row["queue"]: row["count"] for row in self._chosen}

    def send(self, options: dict[str, str]) -> None:
        """Publish them, with two more attributes that say where they come from.

        The same replay of the same bronze has the same key, so repeating it within the queue's
        dedup window publishes nothing twice, whatever the files are by then, or the cores. If the
        condition meets others by then, as one with the current time may, it is another replay:
        under the same key they would pass for published. Raises `QueryFailed`.
        """
        if self._chosen is None:
            self.count()
        words = f"{self._where}\n{self._queue}\n{self._entry}\n{self._chosen}"
        key = "replay-" + hashlib.sha256(words.encode()).hexdigest()[:32]
        writer = _messages(self._rows).write.format("penstock").mode("append")
        with told_in_one_sentence("the messages cannot be published"):
            writer.options(**{**options, "queue": self._queue, "idempotencyKey": key}).save()


def _messages(rows: DataFrame) -> DataFrame:
    """In the same partitions and the same order each time: the sink's keys depend on them."""
    span = F.floor(F.col("index") / _SPAN)
    ordered = rows.repartition(_TASKS, "queue", span).sortWithinPartitions("queue", "index")
    origin = F.create_map(F.lit("replayed-from"), F.col("queue"), F.lit("replayed-id"), F.col("id"))
    given = F.coalesce("attributes", F.create_map().cast("map<string,string>"))
    # A message that was replayed before has these attributes already.
    kept = F.map_filter(given, lambda name, _: ~name.isin("replayed-from", "replayed-id"))
    return ordered.select(
        "body",
        "content_type",
        F.map_concat(kept, origin).alias("attributes"),
        "topic",
        "priority",
        "group_key",
    )

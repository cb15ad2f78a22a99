"""Bronze: every message, and every event, as it was; each exactly once, whoever reads the files."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing

__all__ = ["EVENTS", "MESSAGES", "Feed", "Landed", "Stream", "land_stream"]


class Feed(NamedTuple):
    """What is landed: the table, the column that counts, and the one that has the time."""

    table: str
    number: str
    at: str
    options: dict[str, str]


class Landed(NamedTuple):
    """One batch."""

    table: str
    rows: int
    files: int
    seconds: float


MESSAGES = Feed("bronze", "index", "created_at", {})
EVENTS = Feed("events", "events_index", "at", {"stream": "events"})


class Stream:
    """Lands the batches of one query, in order.

    A queue's rows come in the order of their indexes, and each batch goes on where the one before
    ended. So one number for each queue says what is landed: the progress in the log.
    """

    def __init__(self, lake: Lake, feed: Feed, on_landed: Callable[[Landed], None]) -> None:
        self._feed = feed
        self._landing = Landing(lake, feed.table)
        self._on_landed = on_landed
        # With a checkpoint only the first batch after a start can be one that was landed before.
        # Without one the stream begins at its floor, which may lie below in more than one batch.
        self._has_checkpoint = lake.checkpoint(feed.table).exists()
        self._landed_before = self._landing.recover().progress

    def land(self, batch: DataFrame, _number: int) -> None:
        began = time.monotonic()
        if self._landed_before:
            batch = batch.where(_is_new(self._feed.number, self._landed_before))
            if self._has_checkpoint:
                self._landed_before = {}
        staged = self._landing.staging / self._feed.table
        day = F.to_date(F.col(self._feed.at))
        (
            batch.withColumn("day", day)
            .write.mode("overwrite")
            .partitionBy("queue", "day")
            .parquet(str(staged))
        )
        moves = self._landing.staged(self._feed.table, self._feed.number)
        ends: dict[str, int] = {}
        for move in moves:
            queue = move.path.split("/")[1].removeprefix("queue=")
            ends[queue] = max(ends.get(queue, 0), (move.last or 0) + 1)
        if moves:
            self._landing.land(ends, moves)
        rows = sum(move.rows for move in moves)
        self._on_landed(Landed(self._feed.table, rows, len(moves), time.monotonic() - began))


def _is_new(number: str, progress: dict[str, int]) -> Column:
    """Not landed yet. A queue of which nothing is landed is new altogether."""
    landed = [(F.col("queue") == queue) & (F.col(number) < end) for queue, end in progress.items()]
    return ~reduce(lambda one, other: one | other, landed, F.lit(False))


def land_stream(
    spark: SparkSession,
    lake: Lake,
    feed: Feed,
    options: dict[str, str],
    *,
    once: bool,
    on_landed: Callable[[Landed], None] = lambda _: None,
) -> StreamingQuery:
    """Begin, or go on where the lake's checkpoint is. ``options`` are those of the format."""
    stream = Stream(lake, feed, on_landed)
    source = spark.readStream.format("penstock").options(**{**options, **feed.options}).load()
    writer = (
        source.writeStream.foreachBatch(stream.land)
        .queryName(f"penstock-{feed.table}")
        .option("checkpointLocation", str(lake.checkpoint(feed.table)))
    )
    writer = (
        writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
    )
    return writer.start()

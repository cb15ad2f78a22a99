"""Bronze: every message and every event as it was, exactly once, for any reader of the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.files import FilesSource, StagedFile, Staging
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing, Move
from penstock.pipeline.tables import show_in
from penstock.spark.versions import start_to_the_end

__all__ = [
    "EVENTS",
    "MESSAGES",
    "Feed",
    "Landed",
    "Stream",
    "ends_of",
    "land_stream",
    "progress_of",
]

# In the progress of a job that follows. No queue has such a character in its name.
_QUEUE = "queue="


class Feed(NamedTuple):
    """What is landed: its table, its index column (`number`), and its time column (`at`)."""

    table: str
    number: str
    at: str
    options: dict[str, str]


class Landed(NamedTuple):
    """One landed batch."""

    table: str
    rows: int
    files: int
    seconds: float


MESSAGES = Feed("bronze", "index", "created_at", {})
EVENTS = Feed("events", "events_index", "at", {"stream": "events"})


def progress_of(entry: Entry) -> dict[str, int]:
    """The progress of a job that has read bronze up to this entry."""
    ends = {f"{_QUEUE}{queue}": index for queue, index in entry.progress.items()}
    return {MESSAGES.table: entry.number, **ends}


def ends_of(progress: Mapping[str, int]) -> dict[str, int]:
    """The next index of each queue, from such a progress."""
    return {
        name.removeprefix(_QUEUE): index
        for name, index in progress.items()
        if name.startswith(_QUEUE)
    }


class Stream:
    """Lands the batches of one query, in order.

    A queue's rows come in index order, and each batch continues where the one before ended. So one
    number per queue tells what is landed: the progress in the log.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        feed: Feed,
        on_landed: Callable[[Landed], None],
        *,
        is_once: bool,
    ) -> None:
        """``is_once``: it reads to the end of what is there."""
        self._feed = feed
        self._landing = Landing(lake, feed.table, show_in(spark, lake, feed.table))
        self._on_landed = on_landed
        landed = self._landing.recover().progress
        self.staging = Staging(
            directory=str(self._landing.staging),
            number=feed.number,
            at=feed.at,
            landed=landed,
            is_once=is_once,
        )

    def land(self, batch: DataFrame, _number: int) -> None:
        """The rows of ``batch`` are files: collecting them is what writes them."""
        began = time.monotonic()
        files = [msgspec.convert(row.asDict(), StagedFile) for row in batch.collect()]
        ends: dict[str, int] = {}
        for file in files:
            ends[file.queue] = max(ends.get(file.queue, 0), file.last + 1)
        if files:
            self._landing.land(ends, [self._move(file) for file in files])
        rows = sum(file.rows for file in files)
        self._on_landed(Landed(self._feed.table, rows, len(files), time.monotonic() - began))

    def _move(self, file: StagedFile) -> Move:
        name = f"{file.first:020d}-{file.last:020d}.parquet"
        return Move(
            staged=f"{self._landing.staging.name}/{file.path}",
            path=f"{self._feed.table}/queue={file.queue}/day={file.day}/{name}",
            rows=file.rows,
            bytes=file.bytes,
            first=file.first,
            last=file.last,
        )


def land_stream(
    spark: SparkSession,
    lake: Lake,
    feed: Feed,
    options: dict[str, str],
    *,
    once: bool,
    checkpoints: str | None = None,
    batch_seconds: float = 0.0,
    on_landed: Callable[[Landed], None] = lambda _: None,
) -> StreamingQuery:
    """Start a stream, or resume it from its checkpoint. ``options`` are those of the format.

    ``checkpoints`` is anywhere that Spark can write; the default is in the lake. A batch starts at
    least ``batch_seconds`` after the one before.
    """
    own = str(lake.checkpoint(feed.table))
    place = f"{checkpoints.rstrip('/')}/{feed.table}" if checkpoints else own
    stream = Stream(spark, lake, feed, on_landed, is_once=once)
    spark.dataSource.register(FilesSource)
    every = {**options, **feed.options, **stream.staging.option()}
    source = spark.readStream.format(FilesSource.name()).options(**every).load()
    writer = (
        source.writeStream.foreachBatch(stream.land)
        .queryName(f"penstock-{feed.table}")
        .option("checkpointLocation", place)
    )
    if once:
        return start_to_the_end(writer)
    return writer.trigger(processingTime=f"{round(1000 * batch_seconds)} milliseconds").start()

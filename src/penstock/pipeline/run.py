"""A run: streams into bronze, with silver, gold and compaction following at their own pace."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import InvalidArgument
from penstock.pipeline import gold, silver
from penstock.pipeline.backlogs import measure_backlogs
from penstock.pipeline.bronze import EVENTS, MESSAGES, Feed, Landed, land_stream
from penstock.pipeline.compaction import Compacted, Show, compact_table
from penstock.pipeline.days import compact_days, days_table, limits_of
from penstock.pipeline.jars import CATALOG
from penstock.pipeline.lake import DELTA, ICEBERG, PARQUET, Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.queries import failed, told_in_one_sentence
from penstock.pipeline.start import start_patiently
from penstock.spark.options import read_options
from penstock.spark.queues import Queues

__all__ = ["Job", "Progress", "compact", "run", "trim_logs"]

# A directory is compacted once it has this many files to compact.
_MANY_FILES = 32
_LOOK_SECONDS = 0.25
# In an object store, files stay as they were landed, so batches should be large.
_STORE_BATCH_SECONDS = 60.0
# Tables of these are not compacted here.
_COMPACTED_BY = {
    DELTA: f"Delta compacts them by itself; or say OPTIMIZE delta.`…/{MESSAGES.table}` in SQL",
    ICEBERG: f"say CALL {CATALOG}.system.rewrite_data_files('{MESSAGES.table}') in SQL",
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to do. `options` are the connection options of the format."""

    lake: Lake
    options: dict[str, str]
    queues: Sequence[str] = ()
    pattern: str | None = None
    subscription: str = "pipeline"
    once: bool = False
    refresh_seconds: float = 60.0
    max_rows: int | None = None
    schemas: Mapping[str, str] = field(default_factory=dict)
    fail_on_data_loss: bool = True
    checkpoints: str | None = None
    batch_seconds: float | None = None

    @property
    def stream_options(self) -> dict[str, str]:
        # A pattern, so that a queue without events, or one that does not exist yet, is no error.
        pattern = self.pattern or "|".join(re.escape(name) for name in self.queues) or ".*"
        options = {
            **self.options,
            "subscribePattern": pattern,
            "subscription": self.subscription,
            "startingOffsets": "floor",
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }
        if self.max_rows is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_rows)
        return options

    @property
    def pace_seconds(self) -> float:
        """The least time from one batch to the next."""
        if self.batch_seconds is not None:
            return self.batch_seconds
        return 0.0 if self.lake.root.is_local else _STORE_BATCH_SECONDS


@dataclass
class Progress:
    """What a run has done so far, to be displayed."""

    rows: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    batch_seconds: float = 0.0
    rows_per_second: float = 0.0
    lag: int = 0
    refreshes: int = 0

    def landed(self, batch: Landed) -> None:
        self.rows[batch.table] = self.rows.get(batch.table, 0) + batch.rows
        self.batches += 1
        self.batch_seconds = batch.seconds
        self.rows_per_second = batch.rows / batch.seconds if batch.seconds else 0.0


def run(
    spark: SparkSession,
    job: Job,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    show: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Run to the current end of the queues (``once``), or until ``stop`` is set.

    Raises `LakeInUse`, and `QueryFailed` if a Spark query ends with an error. What was landed by
    then stays.
    """
    progress = progress or Progress()
    stop = stop or threading.Event()
    streams = _Streams(spark, job, progress)
    with job.lake.lock():
        job.lake.keep_format()
        due = time.monotonic() + job.refresh_seconds
        try:
            while not stop.is_set() and streams.advance():
                show(progress)
                if not job.once and time.monotonic() >= due:
                    _refresh(spark, job, progress)
                    streams.look_for_events()
                    due = time.monotonic() + job.refresh_seconds
                stop.wait(_LOOK_SECONDS)
        finally:
            streams.stop()
        _refresh(spark, job, progress)
        show(progress)
    return progress


class _Streams:
    """The streams: messages, and events if any queue has them on.

    With ``once``, events are read after messages, so they include those that the first has caused.
    """

    def __init__(self, spark: SparkSession, job: Job, progress: Progress) -> None:
        self._spark = spark
        self._job = job
        self._progress = progress
        self._options = job.stream_options
        self._queries: dict[str, StreamingQuery] = {}

    def advance(self) -> bool:
        """Start and check the queries. False once a run with ``once`` is complete."""
        if not self._queries:
            self._start(MESSAGES)
        for query in self._queries.values():
            _check(query)
        self._progress.lag = sum(_lag(query) for query in self._queries.values())
        if any(query.isActive for query in self._queries.values()):
            return True
        return EVENTS.table not in self._queries and self.look_for_events()

    def look_for_events(self) -> bool:
        """Start the stream of events if there are any and it is not running yet."""
        if EVENTS.table in self._queries:
            return False
        options = read_options({**self._options, **EVENTS.options}, "stream")
        has_events = bool(Queues(options).look())
        if has_events:
            self._start(EVENTS)
        return has_events

    def _start(self, feed: Feed) -> None:
        self._queries[feed.table] = start_patiently(
            lambda: land_stream(
                self._spark,
                self._job.lake,
                feed,
                self._options,
                once=self._job.once,
                checkpoints=self._job.checkpoints,
                batch_seconds=self._job.pace_seconds,
                on_landed=self._progress.landed,
            )
        )

    def stop(self) -> None:
        for query in self._queries.values():
            query.stop()


def _check(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise failed(f"the stream {query.name} ended", error)


def _lag(query: StreamingQuery) -> int:
    """How many rows were still to be read, as of the last batch."""
    last = query.lastProgress
    if last is None:
        return 0
    lag = 0
    for source in last.sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        lag += sum(max(0, index - end.get(queue, index)) for queue, index in latest.items())
    return lag


def _offsets(value: object) -> dict[str, int]:
    found = value
    if isinstance(found, str):
        try:
            found = msgspec.json.decode(found)
        except msgspec.DecodeError:
            return {}
    return found if isinstance(found, dict) else {}


def _refresh(spark: SparkSession, job: Job, progress: Progress) -> None:
    with told_in_one_sentence("silver cannot follow bronze"):
        silver.refresh_silver(spark, job.lake, job.schemas)
    with told_in_one_sentence("gold cannot follow bronze"):
        backlogs = measure_backlogs(job.stream_options)
        gold.refresh_gold(spark, job.lake, backlogs=backlogs, own=job.subscription)
    if job.lake.root.is_local and job.lake.format == PARQUET:
        compact(job.lake, lambda: spark, at_least=_MANY_FILES)
    trim_logs(job.lake)
    progress.refreshes += 1


def compact(
    lake: Lake,
    spark: Callable[[], SparkSession],
    *,
    at_least: int = 2,
    show: Show = lambda _: None,
) -> dict[str, Compacted]:
    """Compact the tables of bronze and of silver, as far as is safe. Returns the results by table.

    On an object store, the results are tables of their own (`compact_days`).
    """
    if lake.format != PARQUET:
        raise InvalidArgument(
            f"the tables of {lake.root} are {lake.format}: {_COMPACTED_BY[lake.format]}"
        )
    if not lake.root.is_local:
        return _compact_feed_days(lake, show) | silver.compact_silver_days(spark, lake, show=show)
    done = {}
    for table, number in _all_have_read(lake).items():
        protected = partial(_landed_by_later, lake, table, number)
        done[table] = compact_table(lake, table, protected=protected, at_least=at_least, show=show)
    return done | silver.compact_silver(spark, lake, at_least=at_least, show=show)


def _landed_by_later(lake: Lake, table: str, number: int) -> list[str]:
    """The files of the entries with a higher number."""
    later = Landing(lake, table).entries(number)
    return [move.path for entry in later for move in entry.files]


def _compact_feed_days(lake: Lake, show: Show) -> dict[str, Compacted]:
    done = {}
    for feed in (MESSAGES, EVENTS):
        newest = Landing(lake, feed.table).last()
        limits = limits_of(feed.table, newest, newest.progress)
        done[days_table(feed.table)] = compact_days(
            lake, feed.table, feed.number, limits, show=show
        )
    return done


def trim_logs(lake: Lake) -> None:
    """Remove log entries that no job has yet to read."""
    for table, number in _all_have_read(lake).items():
        Landing(lake, table).trim(above=number)
    for job in (silver.JOB, gold.JOB):
        Landing(lake, job).trim()


def _all_have_read(lake: Lake) -> dict[str, int]:
    """The entries of bronze and of events up to which every following job has read.

    The newest entry is excluded, because recovery reads it again after a crash.
    """
    progress = [Landing(lake, job).last().progress for job in (silver.JOB, gold.JOB)]
    readers = {MESSAGES.table: progress, EVENTS.table: progress[1:]}
    return {
        table: max(0, min([Landing(lake, table).last().number - 1, *_numbers(those, table)]))
        for table, those in readers.items()
    }


def _numbers(readers: Sequence[Mapping[str, int]], table: str) -> list[int]:
    return [progress.get(table, 0) for progress in readers]

"""A run: streams into bronze; silver, gold and compaction follow at their own pace."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline import gold, silver
from penstock.pipeline.bronze import EVENTS, MESSAGES, Feed, Landed, land_stream
from penstock.pipeline.compaction import Compacted, compact_table
from penstock.pipeline.errors import QueryFailed
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing

__all__ = ["Job", "Progress", "compact", "run"]

# A directory is compacted once it has so many files that can be.
_MANY_FILES = 32
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be done. `options` are those of the format that say where the server is."""

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


@dataclass
class Progress:
    """What a run has done so far, for whoever shows it."""

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
    """To the end of the queues as they are now (``once``), or until ``stop`` is set.

    Raises `LakeInUse`, and `QueryFailed` when a query of Spark's ends with an error. What was
    landed by then stays.
    """
    progress = progress or Progress()
    stop = stop or threading.Event()
    with job.lake.lock():
        queries = [_start(spark, job, feed, progress) for feed in (MESSAGES, EVENTS)]
        try:
            _follow(spark, job, queries, progress, stop, show)
        finally:
            for query in queries:
                query.stop()
        _refresh(spark, job, progress)
        show(progress)
    return progress


def _start(spark: SparkSession, job: Job, feed: Feed, progress: Progress) -> StreamingQuery:
    # A pattern, so that a queue without events, or one that is yet to come, is no error.
    pattern = job.pattern or "|".join(re.escape(name) for name in job.queues) or ".*"
    options = {
        **job.options,
        "subscribePattern": pattern,
        "subscription": job.subscription,
        "startingOffsets": "floor",
        "failOnDataLoss": str(job.fail_on_data_loss).lower(),
    }
    if job.max_rows is not None:
        options["maxOffsetsPerTrigger"] = str(job.max_rows)
    return land_stream(spark, job.lake, feed, options, once=job.once, on_landed=progress.landed)


def _follow(
    spark: SparkSession,
    job: Job,
    queries: list[StreamingQuery],
    progress: Progress,
    stop: threading.Event,
    show: Callable[[Progress], None],
) -> None:
    due = time.monotonic() + job.refresh_seconds
    while not stop.is_set():
        for query in queries:
            _check(query)
        progress.lag = sum(_lag(query) for query in queries)
        show(progress)
        if not any(query.isActive for query in queries):
            return
        if not job.once and time.monotonic() >= due:
            _refresh(spark, job, progress)
            due = time.monotonic() + job.refresh_seconds
        stop.wait(_LOOK_SECONDS)


def _check(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise QueryFailed(f"the stream {query.name} ended: {reason_of(error)}")


def reason_of(error: PySparkException) -> str:
    """The last line of an error that says something, instead of three tracebacks."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("penstock.")]
    return ours[-1] if ours else next((line for line in lines if line), type(error).__name__)


def _lag(query: StreamingQuery) -> int:
    """Rows that wait at the sources, as of the last batch."""
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
    silver.refresh_silver(spark, job.lake, job.schemas)
    gold.refresh_gold(spark, job.lake)
    compact(job.lake, at_least=_MANY_FILES)
    progress.refreshes += 1


def compact(lake: Lake, *, at_least: int = 2) -> dict[str, Compacted]:
    """Both tables of bronze, but for files that a job is yet to read by their names."""
    progress = [Landing(lake, job).last().progress for job in (silver.JOB, gold.JOB)]
    readers = {MESSAGES.table: progress, EVENTS.table: progress[1:]}
    done = {}
    for table, those in readers.items():
        landing = Landing(lake, table)
        # The newest entry is looked at again after a crash.
        safe = min([landing.last().number - 1, *(each.get(table, 0) for each in those)])
        later = landing.entries(max(safe, 0))
        protected = [move.path for entry in later for move in entry.files]
        done[table] = compact_table(lake, table, protected=protected, at_least=at_least)
    return done

"""Gold: figures by minute and by day, from all that bronze has landed.

The states (see `figures`) are kept by day. New rows of bronze are added to the days that they
belong to; nothing is read twice, and other days stay as they are. The tables for people are made
from the states, and replaced day by day.

An event does not have the topic and the tenant of its message: they are looked up in bronze. Both
are landed side by side, so an event may be landed before its message. Then it *waits*, and counts
as one without topic and tenant in the meantime.

Invariant: every landed event of a subscription is either counted in the state, or among those that
wait. One entry of the log replaces both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.pipeline.backlogs import Backlog
from penstock.pipeline.bronze import EVENTS, MESSAGES, Feed, ends_of, progress_of
from penstock.pipeline.figures import (
    BACKLOG,
    DELIVERY,
    EVENT_COLUMNS,
    LETTERS,
    STATES,
    TABLES,
    TRAFFIC,
    deliveries,
    letters,
    tables,
    tenant,
    traffic,
)
from penstock.pipeline.lake import PARQUET, Lake
from penstock.pipeline.landing import Entry, Landing
from penstock.pipeline.place import Place
from penstock.pipeline.states import StateFiles, day_of
from penstock.pipeline.tables import Span, read_entries, read_spans, replace_days, show_in

__all__ = ["JOB", "gold_path", "refresh_gold"]

JOB = "gold"
# The number of the entry that the tables were made from: a crash may come between the two.
_SHOWN = "_penstock/state/shown"
_FILE = "figures.parquet"
# Messages are looked up by ranges of this many indexes.
_SPAN = 65_536


def gold_path(lake: Lake, table: str) -> Place:
    """A directory with a file for each day. With a table format, this is a copy of the table."""
    return (lake.table("gold") if lake.format == PARQUET else lake.own / "gold") / table


def refresh_gold(
    spark: SparkSession, lake: Lake, *, backlogs: Sequence[Backlog] = (), own: str = "pipeline"
) -> bool:
    """Add what bronze has landed since the last time, and ``backlogs`` that were measured.

    Returns whether there was anything to do. ``own`` is the subscription of the pipeline.
    """
    landing = Landing(lake, JOB)
    last = landing.recover()
    files = StateFiles(spark, lake, landing)
    if files.are_early():
        last = files.adopt_early()
    is_behind = _shown(lake) != last.number
    if is_behind:
        _show(lake, files, last, own)
    # Events first, so that fewer of them have to wait.
    events = _finished(spark, lake, EVENTS, last)
    messages = _finished(spark, lake, MESSAGES, last)
    if not (events or messages or backlogs):
        return is_behind
    progress = progress_of(messages[-1]) if messages else {}
    if messages:
        rows = read_entries(spark, lake, MESSAGES.table, MESSAGES.number, messages)
        files.add(TRAFFIC, traffic(rows), _days_of(messages))
    unknown, days = files.waiting(), files.days_waiting()
    if events:
        rows = read_entries(spark, lake, EVENTS.table, EVENTS.number, events)
        files.add(LETTERS, letters(rows), _days_of(events))
        progress[EVENTS.table] = events[-1].number
        unknown = unknown.unionByName(rows.where("subscription is not null").select(*EVENT_COLUMNS))
        days |= _days_of(events)
    if days:
        ready, waiting = _split(unknown, ends_of(last.progress | progress))
        files.add(DELIVERY, deliveries(_with_messages(spark, lake, ready)), days)
        files.wait(waiting)
    if backlogs:
        files.add(BACKLOG, _measured(spark, backlogs), {_day(each.at) for each in backlogs})
    _show(lake, files, files.land(progress), own)
    return True


def _finished(spark: SparkSession, lake: Lake, feed: Feed, last: Entry) -> list[Entry]:
    landing = Landing(lake, feed.table, show_in(spark, lake, feed.table))
    return landing.finished(last.progress.get(feed.table, 0))


def _days_of(entries: Iterable[Entry]) -> set[str]:
    """The days of their rows: files are by day."""
    return {day_of(move.path) for entry in entries for move in entry.files}


def _day(at: datetime) -> str:
    return at.astimezone(UTC).date().isoformat()


def _measured(spark: SparkSession, backlogs: Sequence[Backlog]) -> DataFrame:
    rows = spark.createDataFrame(pa.Table.from_pylist([each._asdict() for each in backlogs]))
    minute = F.date_trunc("minute", "at").alias("minute")
    return rows.select(minute, *BACKLOG.keys, F.struct("at", "backlog").alias("last"))


# The topic and the tenant of an event's message.


def _split(events: DataFrame, ends: dict[str, int]) -> tuple[DataFrame, DataFrame]:
    """Those whose messages are landed, or never will be, and the others.

    Messages are landed in the order of their indexes, up to the ``ends`` of their queues.
    """
    queues, landed = pa.array(ends.keys(), pa.string()), pa.array(ends.values(), pa.int64())
    known = events.sparkSession.createDataFrame(pa.table({"queue": queues, "landed": landed}))
    both = events.join(F.broadcast(known), "queue", "left")
    is_landed = F.col("index") < F.coalesce("landed", F.lit(0))
    return both.where(is_landed).drop("landed"), both.where(~is_landed).drop("landed")


def _with_messages(spark: SparkSession, lake: Lake, events: DataFrame) -> DataFrame:
    messages = read_spans(spark, lake, MESSAGES.table, MESSAGES.number, _spans(events))
    if messages is None:
        return _without_messages(events)
    found = messages.select("queue", "index", "topic", tenant())
    return events.join(found, ["queue", "index"], "left")


def _without_messages(events: DataFrame) -> DataFrame:
    nothing = F.lit(None).cast("string")
    return events.withColumns({"topic": nothing, "tenant": nothing})


def _spans(events: DataFrame) -> list[Span]:
    """Where their messages are: each day and range of indexes that has any."""
    day = F.date_format("published_at", "yyyy-MM-dd").alias("day")
    number = F.floor(F.col("index") / _SPAN).alias("number")
    return [
        Span(row["queue"], row["day"], row["number"] * _SPAN, (row["number"] + 1) * _SPAN - 1)
        for row in events.select("queue", day, number).distinct().collect()
    ]


# The tables.


def _shown(lake: Lake) -> int:
    mark = lake.table(_SHOWN)
    return int(mark.read()) if mark.exists() else 0


def _show(lake: Lake, files: StateFiles, entry: Entry, own: str) -> None:
    """Make the tables that the entry has changed, for the days that it has changed."""
    days = _days_of([entry]) - {""} | files.days_waiting()
    changed = files.changed_by(entry)
    states = {state.name: files.read(state, days) for state in STATES}
    waiting = deliveries(_without_messages(files.waiting()))
    states[DELIVERY.name] = states[DELIVERY.name].unionByName(waiting)
    for name, rows in tables(states, own).items():
        table = TABLES[name]
        if changed.isdisjoint(state.name for state in table.states):
            continue
        # Sorted here, because Spark would make the rows twice for it.
        found = rows.toArrow().sort_by([(key, "ascending") for key in table.keys])
        for day in days:
            part = found.filter(pc.field("day") == day)
            if part.num_rows:
                sink = pa.BufferOutputStream()
                pq.write_table(part.drop_columns("day"), sink)
                file = gold_path(lake, name) / f"day={day}" / _FILE
                file.replace(sink.getvalue().to_pybytes())
        if lake.format != PARQUET:
            is_all = days >= files.days(table.states)
            replace_days(lake, f"gold/{name}", rows, None if is_all else days)
    lake.table(_SHOWN).replace(str(entry.number).encode())

"""Writing and reading tables: parquet files, or Delta or Iceberg tables.

With a table format, the files that a batch has staged are not moved, but appended to the table. The
number of the entry is committed with the rows, so that showing an entry again after a crash adds
nothing. Delta checks for that itself (``txnAppId``, ``txnVersion``). With Iceberg, it is in the
summary of the snapshot, and is looked up before the rows are appended: a single driver shows
entries, one after the other, so nobody appends in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.pipeline.jars import CATALOG
from penstock.pipeline.lake import DELTA, ICEBERG, PARQUET, Lake
from penstock.pipeline.landing import Entry, Move, Show
from penstock.pipeline.place import Place

__all__ = ["Span", "read_entries", "read_spans", "read_table", "replace_days", "show_in"]

_PARTITIONS = ("queue", "day")
# In the summary of a snapshot: <job>-<number of the entry>.
_NOTE = "penstock-entry"
_ICEBERG_PROPERTIES = {
    # The first version with VARIANT.
    "format-version": "3",
    # The columns of a typed table may change.
    "write.spark.accept-any-schema": "true",
}


def show_in(spark: SparkSession, lake: Lake, job: str) -> Show | None:
    """The ``show`` for `Landing`; None for the default."""
    if lake.format == PARQUET:
        return None

    def show(entry: Entry, base: Place) -> None:
        tables: dict[str, list[Move]] = {}
        for move in entry.files:
            tables.setdefault(move.path.partition("/")[0], []).append(move)
        for table, moves in tables.items():
            # Staging is removed once every table has its rows, so missing files are in the table.
            staged = [move.staged for move in moves if (base / move.staged).exists()]
            if not staged:
                continue
            root = base / staged[0].partition("/queue=")[0]
            reader = spark.read.option("basePath", str(root))
            rows = reader.parquet(*(str(base / path) for path in staged))
            if lake.format == DELTA:
                _append_to_delta(rows, lake.table(table), job, entry.number)
            else:
                _append_to_iceberg(rows, table, job, entry.number)

    return show


def _append_to_delta(rows: DataFrame, table: Place, job: str, number: int) -> None:
    writer = rows.write.format(DELTA).option("txnAppId", f"penstock-{job}")
    writer = writer.option("txnVersion", number).option("mergeSchema", "true")
    writer.mode("append").partitionBy(*_PARTITIONS).save(str(table))


def _append_to_iceberg(rows: DataFrame, table: str, job: str, number: int) -> None:
    spark, name, note = rows.sparkSession, _iceberg_name(table), f"{job}-{number}"
    if not spark.catalog.tableExists(name):
        new = rows.limit(0).writeTo(name).using(ICEBERG)
        for key, value in _ICEBERG_PROPERTIES.items():
            new = new.tableProperty(key, value)
        new.partitionedBy(*map(F.col, _PARTITIONS)).create()
    snapshots = spark.table(f"{name}.snapshots")
    if snapshots.where(F.col("summary")[_NOTE] == note).isEmpty():
        writer = rows.writeTo(name).option(f"snapshot-property.{_NOTE}", note)
        writer.option("mergeSchema", "true").append()


def _iceberg_name(table: str) -> str:
    return ".".join(f"`{part}`" for part in (CATALOG, *table.split("/")))


def read_table(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    if lake.format == ICEBERG:
        return spark.table(_iceberg_name(table))
    return spark.read.format(lake.format).load(str(lake.table(table)))


def read_entries(
    spark: SparkSession, lake: Lake, table: str, number: str, entries: list[Entry]
) -> DataFrame:
    """The rows that these consecutive entries have landed; ``number`` is the index column."""
    moves = [move for entry in entries for move in entry.files]
    if lake.format != PARQUET:
        return read_table(spark, lake, table).where(_spans(moves, number))
    reader = spark.read.option("basePath", str(lake.table(table)))
    return reader.parquet(*(str(lake.table(move.path)) for move in moves))


def _spans(moves: list[Move], number: str) -> Column:
    """One index range per queue, since consecutive entries have adjacent ranges of it."""
    spans: dict[str, tuple[int, int]] = {}
    for move in moves:
        assert move.first is not None
        assert move.last is not None
        queue = move.path.split("/")[1].removeprefix("queue=")
        first, last = spans.get(queue, (move.first, move.last))
        spans[queue] = min(first, move.first), max(last, move.last)
    each = [
        (F.col("queue") == queue) & F.col(number).between(first, last)
        for queue, (first, last) in spans.items()
    ]
    return reduce(or_, each)


class Span(NamedTuple):
    """A range of indexes of a queue, on one day; `last` is included."""

    queue: str
    day: str
    first: int
    last: int


def read_spans(
    spark: SparkSession, lake: Lake, table: str, number: str, spans: Collection[Span]
) -> DataFrame | None:
    """At least the rows of these spans, without reading much more. None if there are none."""
    if not spans:
        return None
    if lake.format == PARQUET:
        files = _files_of(lake.table(table), spans)
        if not files:
            return None
        reader = spark.read.option("basePath", str(lake.table(table)))
        rows = reader.parquet(*map(str, files))
    else:
        queues, days = {span.queue for span in spans}, {span.day for span in spans}
        rows = read_table(spark, lake, table)
        rows = rows.where(F.col("queue").isin(queues) & F.col("day").isin(days))
    first, last = min(span.first for span in spans), max(span.last for span in spans)
    return rows.where(F.col(number).between(first, last))


def _files_of(table: Place, spans: Iterable[Span]) -> list[Place]:
    places: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        places.setdefault((span.queue, span.day), []).append(span)
    found = []
    for (queue, day), wanted in places.items():
        for file in (table / f"queue={queue}" / f"day={day}").files(".parquet"):
            first, last = map(int, file.name.removesuffix(".parquet").split("-"))
            if any(span.first <= last and first <= span.last for span in wanted):
                found.append(file)
    return found


def replace_days(lake: Lake, table: str, rows: DataFrame, days: Collection[str] | None) -> None:
    """Replace these days of a Delta or Iceberg table atomically, or all of it."""
    if lake.format == ICEBERG:
        writer = rows.writeTo(_iceberg_name(table)).using(ICEBERG)
        if days is None:
            writer.partitionedBy(F.col("day")).createOrReplace()
        else:
            writer.overwrite(F.col("day").isin(*days))
        return
    delta = rows.write.format(DELTA).mode("overwrite")
    if days is None:
        delta = delta.partitionBy("day").option("overwriteSchema", "true")
    else:
        listed = ", ".join(f"'{day}'" for day in sorted(days))
        delta = delta.option("replaceWhere", f"day IN ({listed})")
    delta.save(str(lake.table(table)))

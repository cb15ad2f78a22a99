"""Tables, as parquet files or as tables of Delta's: how rows get into them and are read.

In a lake of Delta's the files that a batch has staged are appended to the table, instead of moved.
Delta notes the number of the entry with the rows, in one step (``txnAppId``, ``txnVersion``): an
entry that is shown again, after a crash, adds nothing.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.pipeline.lake import DELTA, PARQUET, Lake
from penstock.pipeline.landing import Entry, Move, Show
from penstock.pipeline.place import Place

__all__ = ["read_entries", "read_table", "replace_table", "show_in"]

_PARTITIONS = ("queue", "day")


def show_in(spark: SparkSession, lake: Lake, job: str) -> Show | None:
    """What `Landing` asks for."""
    if lake.format == PARQUET:
        return None

    def show(entry: Entry, base: Place) -> None:
        tables: dict[str, list[Move]] = {}
        for move in entry.files:
            tables.setdefault(move.path.partition("/")[0], []).append(move)
        for table, moves in tables.items():
            # Staging is removed once every table has its rows, so what is missing is in the table.
            staged = [move.staged for move in moves if (base / move.staged).exists()]
            if not staged:
                continue
            root = base / staged[0].partition("/queue=")[0]
            rows = spark.read.option("basePath", str(root))
            writer = rows.parquet(*(str(base / path) for path in staged)).write.format(DELTA)
            writer = writer.option("txnAppId", f"penstock-{job}")
            writer = writer.option("txnVersion", entry.number).option("mergeSchema", "true")
            writer.mode("append").partitionBy(*_PARTITIONS).save(str(lake.table(table)))

    return show


def read_table(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    return spark.read.format(lake.format).load(str(lake.table(table)))


def read_entries(
    spark: SparkSession, lake: Lake, table: str, number: str, entries: list[Entry]
) -> DataFrame:
    """The rows that these consecutive entries have landed; ``number`` is the column that counts."""
    moves = [move for entry in entries for move in entry.files]
    if lake.format != PARQUET:
        return read_table(spark, lake, table).where(_spans(moves, number))
    reader = spark.read.option("basePath", str(lake.table(table)))
    return reader.parquet(*(str(lake.table(move.path)) for move in moves))


def _spans(moves: list[Move], number: str) -> Column:
    """Of each queue one: what consecutive entries have of it lies side by side."""
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


def replace_table(lake: Lake, table: str, rows: DataFrame) -> None:
    """As a whole, in one step, in a lake of Delta's."""
    writer = rows.write.format(DELTA).mode("overwrite").option("overwriteSchema", "true")
    writer.save(str(lake.table(table)))

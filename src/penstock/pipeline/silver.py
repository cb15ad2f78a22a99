"""Silver: parsed bodies, and separately those that could not be parsed, with the reason.

Every row of bronze becomes one row of `silver` or one of `rejects`; a body never fails the query.
The progress in the log is the number of the entry of bronze, and the next index of each queue.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from penstock.errors import InvalidArgument
from penstock.pipeline.bronze import MESSAGES, ends_of, progress_of
from penstock.pipeline.compaction import Compacted, Merge, Show, compact_table
from penstock.pipeline.days import compact_days, days_table, limits_of
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing, Move
from penstock.pipeline.place import Place, sync_file
from penstock.pipeline.tables import read_entries, show_in

__all__ = ["JOB", "check_schemas", "compact_silver", "compact_silver_days", "refresh_silver"]

JOB = "silver"
# Rows of bronze per step; a step has at least one entry.
_STEP_ROWS = 5_000_000

_ENVELOPE = (
    "queue",
    "day",
    "index",
    "id",
    "content_type",
    "attributes",
    "topic",
    "priority",
    "group_key",
    "created_at",
)
_CORRUPT = "_corrupt"


def check_schemas(schemas: Mapping[str, str]) -> None:
    """Raises `InvalidArgument` if a queue's schema is not DDL. Spark must have been started."""
    for queue, ddl in schemas.items():
        try:
            _fields(ddl)
        except Exception as exc:
            raise InvalidArgument(f"the schema of queue {queue!r} is not DDL: {exc}") from exc


def _fields(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise InvalidArgument(f"{ddl!r} is one type: name the fields, such as a INT, b STRING")
    return schema


def refresh_silver(spark: SparkSession, lake: Lake, schemas: Mapping[str, str]) -> int:
    """Bring silver up to date with bronze. Returns how many rows that took."""
    landing = Landing(lake, JOB, show_in(spark, lake, JOB))
    done = landing.recover().progress.get(MESSAGES.table, 0)
    rows = 0
    bronze_log = Landing(lake, MESSAGES.table, show_in(spark, lake, MESSAGES.table))
    for step in steps(bronze_log.finished(done), _STEP_ROWS):
        bronze = read_entries(spark, lake, MESSAGES.table, MESSAGES.number, step)
        moves = _stage(bronze, landing, schemas)
        landing.land(progress_of(step[-1]), moves)
        rows += sum(move.rows for entry in step for move in entry.files)
    return rows


def steps(entries: list[Entry], most_rows: int) -> list[list[Entry]]:
    """Group consecutive entries into steps of about ``most_rows`` rows."""
    found: list[list[Entry]] = []
    rows = 0
    for entry in entries:
        if not found or rows >= most_rows:
            found.append([])
            rows = 0
        found[-1].append(entry)
        rows += sum(move.rows for move in entry.files)
    return found


def _stage(bronze: DataFrame, landing: Landing, schemas: Mapping[str, str]) -> list[Move]:
    text = F.col("body").cast("string")
    data = F.try_parse_json(text)
    reason = (
        F.when(F.length("body") == 0, "empty")
        .when(~F.is_valid_utf8(text), "not_utf8")
        .when(data.isNull() | ~_is_whole(text), "not_json")
    )
    typed = F.col("queue").isin(*schemas) if schemas else F.lit(False)
    for queue, ddl in schemas.items():
        wrong = (F.col("queue") == queue) & _typed(ddl)[_CORRUPT].isNotNull()
        reason = reason.when(wrong, "wrong_type")
    judged = bronze.withColumn("reason", reason)
    good, bad = judged.where("reason is null"), judged.where("reason is not null")
    _write(good.where(~typed).select(*_ENVELOPE, data.alias("data")), landing.staging / "silver")
    _write(bad.select(*_ENVELOPE, "body", "reason"), landing.staging / "rejects")
    tables = ["silver", "rejects"]
    for queue, ddl in schemas.items():
        table = f"typed-{queue}"
        data = _typed(ddl).dropFields(_CORRUPT).alias("data")
        rows = good.where(F.col("queue") == queue).select(*_ENVELOPE, data)
        _write(rows, landing.staging / table)
        tables.append(table)
    return [move for table in tables for move in landing.staged(table, "index")]


def _is_whole(text: Column) -> Column:
    """Whether nothing follows the first JSON value, such as a second one. Spark does not look.

    In an array, what follows the value is no longer ignored: only if there is nothing, the mark
    comes second.
    """
    array = F.try_parse_json(F.concat(F.lit("["), text, F.lit(',"\\u0003"]')))
    second = F.try_variant_get(array, "$[1]", "string")
    return F.coalesce(second == F.lit("\u0003"), F.lit(False))


def _typed(ddl: str) -> Column:
    schema = _fields(ddl).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.col("body").cast("string"), schema, options)


def _write(rows: DataFrame, directory: Place) -> None:
    rows.write.mode("overwrite").partitionBy("queue", "day").parquet(str(directory))


def compact_silver(
    spark: Callable[[], SparkSession],
    lake: Lake,
    *,
    at_least: int = 2,
    show: Show = lambda _: None,
) -> dict[str, Compacted]:
    """Compact the tables of silver. Spark is asked for only if there are files to merge.

    Nobody looks for their files by name but `Landing.recover`, for those of the newest entry.
    """
    landing = Landing(lake, JOB)
    newest = [move.path for move in landing.last().files]
    merge = _merge_with(spark)
    return {
        table: compact_table(
            lake, table, protected=lambda: newest, at_least=at_least, merge=merge, show=show
        )
        for table in sorted(landing.totals())
    }


def _merge_with(spark: Callable[[], SparkSession]) -> Merge:
    """Only Spark can merge bodies: in each file, other paths of them are columns of their own."""

    def merge(files: list[Path], target: Path) -> None:
        written = target.with_suffix("")
        _write_merged(_read_files(spark(), files), str(written))
        [part] = written.glob("*.parquet")
        sync_file(part)
        part.rename(target)
        shutil.rmtree(written)

    return merge


def compact_silver_days(
    spark: Callable[[], SparkSession], lake: Lake, *, show: Show = lambda _: None
) -> dict[str, Compacted]:
    """Compact past days of the tables of silver into tables of their own (`compact_days`).

    Spark is asked for only if there are files to merge.
    """
    landing = Landing(lake, JOB)
    newest = landing.last()
    ends = ends_of(newest.progress)

    def stage(files: Sequence[Place], directory: Place, number: str, rows: range | None) -> None:
        found = _read_files(spark(), files)
        if rows is not None:
            found = found.where(F.col(number).between(rows.start, rows.stop - 1))
        _write_merged(found, str(directory))

    return {
        days_table(table): compact_days(
            lake, table, MESSAGES.number, limits_of(table, newest, ends), stage=stage, show=show
        )
        for table in sorted(landing.totals())
    }


def _read_files(spark: SparkSession, files: Iterable[object]) -> DataFrame:
    # The directories above are no columns here.
    reader = spark.read.option("recursiveFileLookup", "true")
    return reader.parquet(*map(str, files))


def _write_merged(rows: DataFrame, directory: str) -> None:
    """One file, in the order of the indexes, whatever the session says of the size of files."""
    ordered = rows.coalesce(1).sortWithinPartitions(MESSAGES.number)
    ordered.write.option("maxRecordsPerFile", 0).parquet(directory)

"""Days of silver that are over in large files, which Spark writes.

On a disk, where a process can be ended at any step. See `test_object_store` for an object store.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import silver
from penstock.pipeline.days import compact_days, limits_of
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing
from penstock.pipeline.place import Place
from penstock.pipeline.silver import compact_silver_days, refresh_silver
from penstock.pipeline.status import status_of
from tests.docs.page import blocks_in
from tests.spark.landings import files, lakes_ended_at_each_step, land_bodies, rows

MONDAY, TUESDAY, WEDNESDAY, THURSDAY = (f"2030-02-0{day}" for day in (4, 5, 6, 7))
# Of each file other paths are stored as columns of their own.
SHAPES = (b'{"a": 1}', b'{"a": 2, "b": {"c": [3]}}', b'{"a": "x"}')


def land(spark: SparkSession, lake: Lake, *bodies: bytes, day: str, ddl: str = "") -> None:
    """A batch, through bronze and silver."""
    land_bodies(lake, bodies, day=day)
    refresh_silver(spark, lake, {"orders": ddl} if ddl else {})


def compact(spark: SparkSession, lake: Lake) -> dict[str, tuple[int, ...]]:
    done = compact_silver_days(lambda: spark, lake)
    return {table: tuple(each) for table, each in done.items()}


def names(lake: Lake, table: str) -> list[str]:
    base = lake.table(table)
    return [file.below(base).removeprefix("queue=orders/") for file in files(lake, table)]


def name(day: str, first: int, last: int) -> str:
    return f"day={day}/{first:020d}-{last:020d}.parquet"


def seen(spark: SparkSession, lake: Lake, table: str, data: str) -> list[tuple[object, ...]]:
    found = spark.read.parquet(str(lake.table(table))).selectExpr(
        "queue", "day", "index", "id", "created_at", data
    )
    return sorted(tuple(row) for row in found.collect())


def test_days_that_are_over_become_one_file_each_with_the_same_rows(
    spark: SparkSession, lake: Lake
) -> None:
    for body in SHAPES:
        land(spark, lake, body, b"", body, day=MONDAY)
    land(spark, lake, SHAPES[0], b"", day=TUESDAY)
    land(spark, lake, SHAPES[0], day=TUESDAY)
    before = names(lake, "silver")

    done = compact(spark, lake)

    assert done == {"compacted/silver": (3, 1), "compacted/rejects": (3, 1)}
    assert names(lake, "compacted/silver") == [name(MONDAY, 0, 8)]
    assert names(lake, "compacted/rejects") == [name(MONDAY, 1, 7)]
    for table, data in (("silver", "to_json(data)"), ("rejects", "reason")):
        old = seen(spark, lake, table, data)
        assert seen(spark, lake, f"compacted/{table}", data) == [
            row for row in old if row[1] == MONDAY
        ]
    # Bodies are stored as they were, and the table as such has not changed
    [merged] = files(lake, "compacted/silver")
    with merged.open() as file:
        assert "typed_value" in str(pq.read_schema(file))
    assert names(lake, "silver") == before
    counts = {each.table: (each.files, each.rows) for each in status_of(lake).tables}
    assert counts["silver"] == (5, 8)
    assert counts["compacted/silver"] == (1, 6)
    assert counts["compacted/rejects"] == (1, 3)
    # And the next one goes on
    assert compact(spark, lake) == {"compacted/silver": (0, 0), "compacted/rejects": (0, 0)}
    land(spark, lake, *SHAPES, day=WEDNESDAY)
    land(spark, lake, *SHAPES, day=WEDNESDAY)
    assert compact(spark, lake) == {"compacted/silver": (2, 1), "compacted/rejects": (0, 0)}
    assert names(lake, "compacted/silver") == [name(MONDAY, 0, 8), name(TUESDAY, 9, 11)]


def test_whatever_step_a_compaction_was_ended_at_no_row_is_there_twice_or_left_out(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typed table, whose schema has changed in a day that is over."""
    for ddl in ("a INT", "a INT", "a STRING", "a STRING"):
        land(spark, lake, b'{"a": 1}', b'{"a": 1}', day=MONDAY, ddl=ddl)
    for _ in range(2):
        land(spark, lake, b'{"a": 1}', day=TUESDAY, ddl="a INT")
    typed, compacted = "typed-orders", "compacted/typed-orders"
    steps = 0

    for ended in lakes_ended_at_each_step(lake, lambda each: compact(spark, each), monkeypatch):
        assert rows(ended, compacted) in [list(range(count)) for count in (0, 4, 8)]

        compact(spark, ended)

        assert names(ended, compacted) == [name(MONDAY, 0, 3), name(MONDAY, 4, 7)]
        assert rows(ended, compacted) == list(range(8))
        assert rows(ended, typed) == list(range(10))
        steps += 1
    assert steps > 10
    # And no value has become another
    kept = [
        {row["data"]["a"] for row in spark.read.parquet(str(file)).collect()}
        for file in files(ended, compacted)
    ]
    assert kept == [{1}, {"1"}]


def test_files_of_one_batch_may_overlap(spark: SparkSession, lake: Lake) -> None:
    # Given files of bronze of which every other one is large, so that a task of Spark's has those
    large = b'"%s"' % (b"x" * 10_000)
    for number in range(8):
        land_bodies(lake, [large, b"1"] if number % 2 else [b"2"], day=MONDAY)
    refresh_silver(spark, lake, {})
    ranges = [file.name.removesuffix(".parquet").split("-") for file in files(lake, "silver")]
    assert len(ranges) > 1
    assert ranges[1][0] < ranges[0][1]
    for _ in range(2):
        land(spark, lake, b"3", day=TUESDAY)

    assert compact(spark, lake)["compacted/silver"] == (len(ranges), 1)

    assert names(lake, "compacted/silver") == [name(MONDAY, 0, 11)]
    [merged] = files(lake, "compacted/silver")
    with merged.open() as file:
        assert pq.ParquetFile(file).read(["index"])["index"].to_pylist() == list(range(12))


def test_a_clock_that_was_set_back_in_a_batch_leaves_no_row_out(
    spark: SparkSession, lake: Lake
) -> None:
    # Given one batch of silver, of these days in turn
    for day in (MONDAY, TUESDAY, MONDAY, TUESDAY):
        land_bodies(lake, [b"1", b"2"], day=day)
    refresh_silver(spark, lake, {})
    for _ in range(2):
        land(spark, lake, b"3", day=WEDNESDAY)

    compact(spark, lake)

    assert names(lake, "compacted/silver") == [
        name(MONDAY, 0, 1),
        name(MONDAY, 4, 5),
        name(TUESDAY, 2, 3),
        name(TUESDAY, 6, 7),
    ]
    assert rows(lake, "compacted/silver") == list(range(8))


def test_what_a_pipeline_has_not_moved_yet_is_left_for_later(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may land a batch after the compaction has looked at the log, and before at the files."""
    for day in (MONDAY, MONDAY, TUESDAY):
        land(spark, lake, b"1", day=day)
    # Given a newest batch without a file in this table
    land(spark, lake, b"", day=TUESDAY)
    move_to, staged = Place.move_to, Landing.staged

    def crash(self: Place, target: Place) -> None:
        if f"silver/queue=orders/day={TUESDAY}" in target.path:
            raise KeyboardInterrupt
        move_to(self, target)

    def limits_then_a_batch(table: str, newest: Entry, landed: dict[str, int]) -> dict[str, int]:
        limits = limits_of(table, newest, landed)
        if table == "silver":
            for day in (TUESDAY, WEDNESDAY, THURSDAY):
                land_bodies(lake, [b"2"], day=day)
            # Its first file is not there when the others are: they may be moved in any order.
            with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
                patch.setattr(Place, "move_to", crash)
                patch.setattr(Landing, "staged", lambda *words: staged(*words)[::-1])
                refresh_silver(spark, lake, {})
        return limits

    with monkeypatch.context() as patch:
        patch.setattr(silver, "limits_of", limits_then_a_batch)
        compact(spark, lake)
    assert rows(lake, "silver") == [0, 1, 2, 5, 6]
    assert rows(lake, "compacted/silver") == [0, 1]

    # Nor is it taken when it is the newest in the log
    compact(spark, lake)
    assert rows(lake, "compacted/silver") == [0, 1]

    refresh_silver(spark, lake, {})
    land(spark, lake, b"3", day=THURSDAY)
    compact(spark, lake)
    assert names(lake, "compacted/silver") == [
        name(MONDAY, 0, 1),
        name(TUESDAY, 2, 4),
        name(WEDNESDAY, 5, 5),
    ]


def test_a_lake_without_the_indexes_in_silvers_log_has_to_wait_for_the_next_batch(
    spark: SparkSession, lake: Lake
) -> None:
    for day in (MONDAY, TUESDAY, TUESDAY):
        land(spark, lake, b"1", day=day)
    newest = Landing(lake, "silver").last()
    log = lake.log("silver") / f"{newest.number:012d}.json"
    log.replace(log.read().replace(b'"queue=orders":3', b'"unknown":3'))

    assert compact_silver_days(_no_spark, lake)["compacted/silver"].after == 0

    land(spark, lake, b"1", day=WEDNESDAY)
    assert compact(spark, lake)["compacted/silver"] == (1, 1)


def _no_spark() -> NoReturn:
    raise AssertionError("there is nothing to merge")


@pytest.mark.parametrize("table", ["bronze", "silver"])
def test_a_table_and_its_days_that_are_over_are_every_row_once_by_the_query_of_the_page(
    spark: SparkSession, lake: Lake, table: str
) -> None:
    for day in (MONDAY, MONDAY, TUESDAY, TUESDAY):
        land(spark, lake, b'{"a": 1}', b"2", day=day)
    newest = Landing(lake, "bronze").last()
    compact_days(lake, "bronze", "index", limits_of("bronze", newest, newest.progress))
    compact(spark, lake)
    for name, path in ((table, table), ("compacted", f"compacted/{table}")):
        spark.read.parquet(str(lake.table(path))).createOrReplaceTempView(name)

    [query] = blocks_in("docs/pipeline.md", "sql")
    found = spark.sql(query.replace("bronze", table)).collect()

    assert sorted(row["index"] for row in found) == list(range(8))
    assert spark.table("compacted").count() == 4

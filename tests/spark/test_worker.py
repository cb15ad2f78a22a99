"""What tasks do to the process that they run in."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module

import pyarrow as pa
import pyspark
from pyspark.sql import Row, SparkSession

from penstock.spark.worker import settle_in


def test_a_worker_does_not_look_through_its_modules_after_each_task(spark: SparkSession) -> None:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"kept": [gc.get_freeze_count()]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(count, "kept long").collect()

    assert row["kept"] > 10_000


def test_what_a_task_imports_is_left_out_from_the_next_task_on(spark: SparkSession) -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        left = len(gc.get_objects())
        import_module("pandas")
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"worker": [os.getpid()], "left": [left]})

    rows = [
        row
        for _ in range(6)
        for row in spark.range(0, 1, 1, 1).mapInArrow(look, "worker long, left long").collect()
    ]

    again = [row["left"] for at, row in enumerate(rows) if row["worker"] in workers(rows[:at])]
    assert again
    assert max(again) < 10_000  # pandas alone makes more


def workers(rows: list[Row]) -> set[int]:
    return {row["worker"] for row in rows}


def test_workers_have_pyspark_from_where_it_is_installed_and_compiled(spark: SparkSession) -> None:
    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [sys.modules["pyspark"].__file__]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(tell, "file string").collect()

    assert row["file"] == pyspark.__file__


def test_a_process_that_is_no_worker_is_left_as_it_is() -> None:
    before = gc.get_freeze_count()

    settle_in()

    assert gc.get_freeze_count() == before

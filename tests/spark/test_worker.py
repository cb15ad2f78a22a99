"""What tasks do to the process that they run in."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.spark.worker import settle_in


def test_a_worker_does_not_look_through_its_modules_after_each_task(spark: SparkSession) -> None:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"kept": [gc.get_freeze_count()]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(count, "kept long").collect()

    assert row["kept"] > 10_000


def test_a_process_that_is_no_worker_is_left_as_it_is() -> None:
    before = gc.get_freeze_count()

    settle_in()

    assert gc.get_freeze_count() == before

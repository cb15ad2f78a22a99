"""A driver of its own, which a test kills: queue → bronze, and queue → queue.

A test may have it wait until it is told to go, and have it held at a step of a batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing, Move
from penstock.pipeline.session import make_session
from penstock.pipeline.start import start_patiently
from penstock.spark.options import write_options
from penstock.spark.versions import start_to_the_end
from penstock.spark.writer import PenstockStreamWriter, Written
from pyspark_penstock import DefaultSource
from tests.spark.helpers import QUICK
from tests.spark.holds import Holds

__all__ = ["COPY_STEPS", "LANDING_STEPS", "copy_checkpoint", "drive", "main"]

# In the order in which a batch comes to them. At `moving` one of its files is in its place.
LANDING_STEPS = ("staged", "entered", "moving", "landed")
COPY_STEPS = ("published",)


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = make_session(given["master"], settings={**QUICK, **given.get("settings", {})})
    if "holds" in given:
        _hold_landing(Holds(given["holds"]))
        print("ready", flush=True)
        sys.stdin.readline()
    drive(spark, given)
    print("done", flush=True)


def drive(spark: SparkSession, given: dict[str, Any]) -> None:
    """To the end of what there is, or without end."""
    lake = Lake(given["lake"])
    options = {**given["options"], "retrySeconds": "60"}
    source = {**options, "subscribe": given["queue"], "maxOffsetsPerTrigger": "2000"}

    def bronze() -> StreamingQuery:
        every = {**source, **given.get("bronze_options", {}), "subscription": "bronze"}
        return land_stream(spark, lake, MESSAGES, every, once=given["once"])

    def copy() -> StreamingQuery:
        written = {**given.get("write_options", options), "queue": given["target"]}
        rows = spark.readStream.format("penstock").options(**source, subscription="copy").load()
        writer = rows.select("body").writeStream.format("penstock").options(**written)
        if "holds" in given:
            spark.dataSource.register(HeldSource)
            writer = writer.format(HeldSource.name()).option("holds", given["holds"])
        writer = writer.option("checkpointLocation", str(copy_checkpoint(lake)))
        return start_to_the_end(writer) if given["once"] else writer.start()

    for query in [start_patiently(bronze), start_patiently(copy)]:
        query.awaitTermination()


def copy_checkpoint(lake: Lake) -> Path:
    return Path(lake.own) / "copy"


def _hold_landing(holds: Holds) -> None:
    land, finish, move = Landing.land, Landing._finish, Landing._move

    def held_land(self: Landing, *words: Any) -> Entry:
        holds.at("staged")
        entry = land(self, *words)
        holds.at("landed")
        return entry

    def held_finish(self: Landing, entry: Entry) -> None:
        holds.at("entered")
        finish(self, entry)

    def held_move(self: Landing, file: Move) -> str:
        directory = move(self, file)
        holds.at("moving")
        return directory

    Landing.land = held_land  # type: ignore[method-assign, assignment]
    Landing._finish = held_finish  # type: ignore[method-assign]
    Landing._move = held_move  # type: ignore[method-assign, assignment]


class HeldSource(DefaultSource):
    """The format, whose tasks can be held when they have published all of their rows."""

    @classmethod
    def name(cls) -> str:
        return "penstock-held"

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        given = dict(self.options)
        return HeldWriter(Holds(given.pop("holds")), given)


class HeldWriter(PenstockStreamWriter):
    def __init__(self, holds: Holds, options: dict[str, str]) -> None:
        super().__init__(write_options(options, is_stream=True))
        self._holds = holds

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        written = super().write(iterator)
        self._holds.at("published")
        return written


if __name__ == "__main__":
    main()

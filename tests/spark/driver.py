"""A driver of its own, which a test kills: queue → bronze, and queue → queue.

Says a line whenever a batch is done, so that the test can pick its moment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.lake import Lake
from penstock.pipeline.session import make_session
from penstock.pipeline.start import start_patiently
from tests.spark.helpers import QUICK

__all__ = ["drive", "main"]


def main() -> None:
    given = json.loads(sys.argv[1])
    drive(make_session(given["master"], settings={**QUICK, **given.get("settings", {})}), given)
    print("done", flush=True)


def drive(spark: SparkSession, given: dict[str, Any]) -> None:
    """To the end of what there is, or without end."""
    lake = Lake(given["lake"])
    options = {**given["options"], "retrySeconds": "60"}
    source = {**options, "subscribe": given["queue"], "maxOffsetsPerTrigger": "2000"}

    def bronze() -> StreamingQuery:
        return land_stream(
            spark,
            lake,
            MESSAGES,
            {**source, "subscription": "bronze"},
            once=given["once"],
            on_landed=lambda landed: print(f"landed {landed.rows}", flush=True),
        )

    def copy() -> StreamingQuery:
        writer = (
            spark.readStream.format("penstock")
            .options(**source, subscription="copy")
            .load()
            .select("body")
            .writeStream.format("penstock")
            .options(**given.get("write_options", options), queue=given["target"])
            .option("checkpointLocation", str(Path(given["lake"]) / "_penstock" / "copy"))
        )
        return (writer.trigger(availableNow=True) if given["once"] else writer).start()

    for query in [start_patiently(bronze), start_patiently(copy)]:
        query.awaitTermination()


if __name__ == "__main__":
    main()

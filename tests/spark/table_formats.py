"""Run by `test_table_formats`, with another Python: a queue into a table of Delta's or Iceberg's.

The first run is followed by one that Spark begins without knowing that the last batch was done.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.start import start_patiently

__all__: list[str] = []

_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def _run(spark: SparkSession, kind: str, options: dict[str, str], where: Path) -> int:
    writer = (
        spark.readStream.format("penstock")
        .options(**options)
        .load()
        .writeStream.format(kind)
        .option("checkpointLocation", str(where / "checkpoint"))
    )

    def start() -> StreamingQuery:
        if kind == "iceberg":
            return writer.toTable("lake.db.orders")
        return writer.start(str(where / "t"))

    query = start_patiently(start)
    # Spark 4.1 has no `availableNow` for sources in Python; docs/spark.md says to do this.
    query.processAllAvailable()
    query.stop()
    rows = (
        spark.table("lake.db.orders")
        if kind == "iceberg"
        else spark.read.format("delta").load(str(where / "t"))
    )
    assert rows.count() == rows.select("queue", "index").distinct().count()
    return rows.count()


def _forget_the_last_batch(checkpoint: Path) -> None:
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for name in (newest.name, f".{newest.name}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def main() -> None:
    given = json.loads(sys.argv[1])
    kind, where = given["kind"], Path(given["where"])
    builder = SparkSession.builder.master("local[2]").config("spark.jars", given["jars"])
    settings = {
        **_SETTINGS[kind],
        "spark.sql.catalog.lake.warehouse": str(where),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    first = _run(spark, kind, given["options"], where)
    _forget_the_last_batch(where / "checkpoint")
    second = _run(spark, kind, given["options"], where)
    print(json.dumps({"spark": spark.version, "first": first, "second": second}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""A pipeline in a process of its own, which a test kills; at its end Spark counts what it sees."""

from __future__ import annotations

import json
import sys

from penstock.pipeline.bronze import MESSAGES
from penstock.pipeline.jars import check_jars, jar_settings, s3_jars
from penstock.pipeline.lake import Lake
from penstock.pipeline.run import Job, run
from penstock.pipeline.session import make_session
from tests.spark.helpers import QUICK

__all__ = ["main"]


def main() -> None:
    given = json.loads(sys.argv[1])
    lake = Lake(given["lake"])
    needed = [] if lake.root.is_local else [s3_jars()]
    settings = {**QUICK, **jar_settings(needed)}
    spark = make_session("local[2]", settings=settings)
    check_jars(spark, needed)
    job = Job(
        lake=lake,
        options=given["options"],
        queues=[given["queue"]],
        once=given["once"],
        max_rows=given["max_rows"],
        batch_seconds=0,
    )
    run(spark, job, show=lambda progress: print("some" if progress.batches > 1 else "", flush=True))
    tables = {
        name: spark.read.parquet(str(lake.table(name)))
        for name in (MESSAGES.table, "silver", "rejects")
    }
    seen = {
        name: sorted(row["index"] for row in rows.select("index").collect())
        for name, rows in tables.items()
    }
    print(f"seen {json.dumps(seen)}", flush=True)
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

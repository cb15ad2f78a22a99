"""A pipeline in a process of its own, which a test kills; at its end Spark says what it sees.

It may be told to end at once in its second entry: before the rows are shown, or after that.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime

from pyspark.sql import functions as F

from penstock.pipeline.backlogs import Backlog
from penstock.pipeline.gold import refresh_gold
from penstock.pipeline.jars import check_jars, lake_settings
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing
from penstock.pipeline.run import Job, run, trim_logs
from penstock.pipeline.session import make_session
from penstock.pipeline.tables import read_table

__all__ = ["main"]


def _end_at(when: str) -> None:
    finish = Landing._finish

    def end(*_: object) -> bool:
        print("ended", flush=True)
        os._exit(9)

    def finish_or_end(self: Landing, entry: Entry) -> None:
        if entry.number == 2:
            if when == "before":
                end()
            Landing._is_over = end  # type: ignore[method-assign, assignment]
        finish(self, entry)

    Landing._finish = finish_or_end  # type: ignore[method-assign]


def main() -> None:
    given = json.loads(sys.argv[1])
    lake = Lake(given["lake"])
    lake.choose_format(given.get("format"))
    settings = {**given["settings"], **lake_settings(lake, fetch="jars" not in given)}
    if "jars" in given:
        settings["spark.jars"] = given["jars"]
    spark = make_session("local[2]", settings=settings)
    check_jars(spark, lake)
    if "end" in given:
        _end_at(given["end"])
    job = Job(
        lake=lake,
        options=given["options"],
        queues=[given["queue"]],
        once=True,
        max_rows=given["max_rows"],
    )
    run(spark, job, show=lambda progress: print("some" if progress.batches > 1 else "", flush=True))
    seen: dict[str, object] = {
        name: sorted(row["index"] for row in read_table(spark, lake, name).collect())
        for name in ("bronze", "silver", "rejects")
    }
    # One day of a table is replaced, and the others stay. No clock is right about this one.
    for second, backlog in enumerate((7, 5)):
        at = datetime(2130, 1, 31, second=second, tzinfo=UTC)
        refresh_gold(spark, lake, backlogs=[Backlog(at, given["queue"], "other", backlog)])
    trim_logs(lake)
    rows = read_table(spark, lake, "gold/backlog_minute").collect()
    seen["backlogs"] = {row["subscription"]: row["backlog"] for row in rows}
    days = read_table(spark, lake, "gold/traffic_day")
    [total] = days.agg(F.sum("published")).first() or [None]
    print(f"seen {json.dumps({**seen, 'published': total, 'spark': spark.version})}", flush=True)
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

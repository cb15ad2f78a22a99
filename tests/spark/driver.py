"""A driver of its own, which a test kills: queue → bronze, and queue → queue.

Says a line whenever a batch is done, so that the test can pick its moment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.lake import Lake
from penstock.pipeline.session import make_session
from tests.spark.helpers import QUICK

__all__ = ["main"]


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = make_session(given["master"], settings={**QUICK, **given.get("settings", {})})
    lake = Lake(given["lake"])
    options = {**given["options"], "retrySeconds": "60"}
    source = {**options, "subscribe": given["queue"], "maxOffsetsPerTrigger": "2000"}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    bronze = land_stream(
        spark,
        lake,
        MESSAGES,
        {**source, "subscription": "bronze"},
        once=given["once"],
        on_landed=lambda landed: print(f"landed {landed.rows}", flush=True),
    )
    copy = (
        spark.readStream.format("penstock")
        .options(**source, subscription="copy")
        .load()
        .select("body")
        .writeStream.format("penstock")
        .options(**options, queue=given["target"])
        .option("checkpointLocation", str(Path(given["lake"]) / "_penstock" / "copy"))
    )
    copied = (copy.trigger(availableNow=True) if given["once"] else copy).start()
    bronze.awaitTermination()
    copied.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main()

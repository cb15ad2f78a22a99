"""Days of a lake, landed in a process of its own, which ends in the middle of compacting silver.

An object store needs jars that only a new Spark can have.
"""

from __future__ import annotations

import json
import os
import sys

from penstock.pipeline.jars import lake_settings
from penstock.pipeline.lake import Lake
from penstock.pipeline.place import Place
from penstock.pipeline.run import compact
from penstock.pipeline.session import make_session
from penstock.pipeline.silver import refresh_silver
from tests.spark.landings import land_bodies

__all__ = ["main"]


def main() -> None:
    """For each batch: its day, its bodies, and the schema of the queue, if it has one."""
    given = json.loads(sys.argv[1])
    lake = Lake(given["lake"])
    spark = make_session(
        "local[2]", settings={**given["settings"], **lake_settings(lake, fetch=True)}
    )
    for day, bodies, ddl in given["batches"]:
        land_bodies(lake, [body.encode() for body in bodies], day=day)
        refresh_silver(spark, lake, {"orders": ddl} if ddl else {})
    move_to = Place.move_to

    def move_or_end(self: Place, target: Place) -> None:
        if given["end"] in target.path:
            print("ended", flush=True)
            os._exit(9)
        move_to(self, target)

    Place.move_to = move_or_end  # type: ignore[method-assign]
    compact(lake, lambda: spark)


if __name__ == "__main__":
    main()

"""A lake, a checkpoint and a log that an earlier version wrote, with which this one goes on.

They are in ``stored/``: each message of `orders` has the topic `a` or `b`, most are of the tenant
`acme`, and 12 of 15 are landed. `billing` got 8 of them, acked 6, and one became a dead letter.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.lake import Lake
from penstock.pipeline.run import Job, run
from penstock.pipeline.status import status_of
from tests.client.server import Server
from tests.spark.helpers import OPTIONS, admin, figures

STORED = sorted((Path(__file__).parent / "stored").glob("lake-*.tar.gz"))


@pytest.fixture(params=STORED, ids=lambda path: path.name.removesuffix(".tar.gz"))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, in which `data` is the server's directory."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_each_message_is_landed_once_across_an_upgrade(spark: SparkSession, stored: Path) -> None:
    lake = Lake(stored / "lake")
    with Server(str(stored / "data"), stored / "log") as server, admin(server.url) as client:
        client.publish("orders", [b'{"id": 15}'])
        job = Job(lake=lake, options={"url": server.url, **OPTIONS}, pattern="orders", once=True)
        done = run(spark, job)
        floors = {
            s.name: s.lowest_unacked_index for s in client.queue_stats("orders").subscriptions
        }
        backlogs = {
            s.name: s.ready + s.in_flight for s in client.queue_stats("orders").subscriptions
        }

    assert done.rows["bronze"] == 4  # those that had not been landed, and the new one
    bronze = ds.dataset(lake.table("bronze"), format="parquet", partitioning="hive").to_table()
    assert sorted(bronze["index"].to_pylist()) == list(range(16))
    assert floors["pipeline"] == 16
    tables = {each.table: each.rows for each in status_of(lake).tables}
    assert tables["silver"] + tables["rejects"] == 16
    assert status_of(lake).behind == {"silver": 0, "gold": 0}
    traffic = figures(lake, "traffic_day")
    assert sum(row["published"] for row in traffic) == 16
    assert sum(row["acked"] or 0 for row in traffic) == 6
    [billing] = [row for row in figures(lake, "delivery_day") if row["subscription"] == "billing"]
    # The lease of the eighth has ended since.
    assert (billing["delivered"], billing["acked"], billing["dead"]) == (8, 6, 2)
    measured = {row["subscription"]: row["backlog"] for row in figures(lake, "backlog_minute")}
    assert measured == backlogs

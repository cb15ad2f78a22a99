"""The whole pipeline on an object store: killed in the middle, and then run to the end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyarrow import fs
from typer.testing import CliRunner, Result

from penstock.cli.pipeline import app
from penstock.client import Client
from penstock.pipeline.lake import Lake
from penstock.pipeline.status import status_of
from tests.client.server import Server
from tests.spark.helpers import OPTIONS, QUICK
from tests.spark.process import Driver

pytestmark = pytest.mark.skipif(
    not (os.environ.get("CI") or os.environ.get("PENSTOCK_SPARK_ALL")),
    reason="takes minutes, and 14 MB from Maven Central once: set PENSTOCK_SPARK_ALL=1",
)

COUNT = 4000


@pytest.mark.usefixtures("java")
def test_a_lake_on_s3_has_each_message_once_after_a_kill(
    server: Server, client: Client, queue: str, bucket: str, tmp_path: Path
) -> None:
    client.publish(queue, [b'{"n": %d}' % n if n % 10 else b"no" for n in range(COUNT)])
    command: dict[str, object] = {
        "lake": f"{bucket}/a/lake",
        "options": {"url": server.url, **OPTIONS},
        "settings": QUICK,
        "queue": queue,
        "max_rows": 200,
    }
    log = tmp_path / "driver.log"

    # When it is killed after a batch, in the middle of another,
    with Driver(command, log, program="tests.spark.lake_driver") as driver:
        driver.wait_for("some")
    lake = Lake(f"{bucket}/a/lake")
    landed = status_of(lake).landed[queue]
    assert 0 < landed < COUNT
    assert seen_by_arrow(bucket) == list(range(landed))

    # and run again,
    with Driver({**command, "max_rows": 1000}, log, program="tests.spark.lake_driver") as driver:
        seen = json.loads(driver.wait_for("seen").removeprefix("seen "))
        driver.wait_for("done")

    # then everybody sees each message once.
    assert seen_by_arrow(bucket) == list(range(COUNT))
    assert seen["bronze"] == list(range(COUNT))
    assert seen["rejects"] == list(range(0, COUNT, 10))
    assert sorted([*seen["silver"], *seen["rejects"]]) == list(range(COUNT))
    assert seen["published"] == COUNT
    assert status_of(lake).behind == {"silver": 0, "gold": 0}
    assert lake.staging("bronze").files() == []
    assert [len(lake.log(job).files()) for job in ("bronze", "silver", "gold")] == [1, 1, 1]

    # What needs no Spark works there as on a disk.
    assert call("status", str(lake.root)).exit_code == 0
    assert call("report", str(lake.root)).exit_code == 0
    assert b"messages/min" in (lake.root / "report.html").read()
    assert "compacted/bronze: 0 files became 0" in call("compact", str(lake.root)).output
    assert call("reset", str(lake.root), "--yes").exit_code == 0
    assert lake.root.files() == []


def call(command: str, lake: str, *words: str) -> Result:
    return CliRunner().invoke(app, [command, "--lake", lake, *words])


def seen_by_arrow(bucket: str) -> list[int]:
    """By a reader that knows nothing of Penstock."""
    store, path = fs.FileSystem.from_uri(f"{bucket}/a/lake/bronze")
    rows = ds.dataset(path, filesystem=store, format="parquet", partitioning="hive").to_table()
    return sorted(rows["index"].to_pylist())

"""The whole pipeline on an object store: killed in the middle, and then run to the end.

So are the days that are over, in large files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from typer.testing import CliRunner, Result

from penstock.cli.pipeline import app
from penstock.client import Client
from penstock.pipeline.lake import Lake
from penstock.pipeline.status import status_of
from tests.client.server import Server
from tests.spark.helpers import OPTIONS, QUICK
from tests.spark.landings import files, rows
from tests.spark.process import Driver

pytestmark = pytest.mark.skipif(
    not (os.environ.get("CI") or os.environ.get("PENSTOCK_SPARK_ALL")),
    reason="takes minutes, and 14 MB from Maven Central once: set PENSTOCK_SPARK_ALL=1",
)

COUNT = 4000
MONDAY, TUESDAY = "2030-02-04", "2030-02-05"
LIMIT_SECONDS = 240


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
    assert seen["backlogs"] == {"default": COUNT, "pipeline": 0, "other": 5}
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


@pytest.mark.usefixtures("java")
def test_days_of_silver_on_s3_have_each_row_once_after_an_end_in_the_middle(
    bucket: str, tmp_path: Path
) -> None:
    lake = Lake(f"{bucket}/a/lake")
    batches = [
        *([MONDAY, ['{"a": 1}', "no", '{"a": 2, "b": 3}'], ""] for _ in range(3)),
        *([MONDAY, ['{"a": 1}'], ddl] for ddl in ("a INT", "a INT", "a STRING", "a STRING")),
        *([TUESDAY, ['{"a": 1}', "no"], ddl] for ddl in ("", "", "a STRING", "a STRING")),
        [TUESDAY, ["no"], ""],
    ]
    command = {
        "lake": str(lake.root),
        "settings": QUICK,
        "batches": batches,
        "end": f"compacted/silver/queue=orders/day={MONDAY}",
    }

    # When it ends between the entry and the copy,
    with Driver(command, tmp_path / "driver.log", program="tests.spark.days_driver") as driver:
        driver.wait_for("ended")
    assert rows(lake, "compacted/rejects") == [1, 4, 7]
    assert rows(lake, "compacted/silver") == []

    # and is called again, as by a user,
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from penstock.cli import main; main()", "pipeline", "compact"),
            *("--lake", str(lake.root), "--fetch-jars", "--master", "local[2]"),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    # then days that are over are there once, in one file for each schema.
    assert done.returncode == 0, done.stderr
    assert "compacted/typed-orders: 4 files became 2" in done.stdout
    assert names(lake, "compacted/silver") == [(MONDAY, 0, 8)]
    assert names(lake, "compacted/rejects") == [(MONDAY, 1, 7)]
    assert names(lake, "compacted/typed-orders") == [(MONDAY, 9, 10), (MONDAY, 11, 12)]
    assert rows(lake, "compacted/silver") == [0, 2, 3, 5, 6, 8]
    assert rows(lake, "compacted/rejects") == [1, 4, 7]
    assert rows(lake, "compacted/typed-orders") == [9, 10, 11, 12]
    assert rows(lake, "silver") == [0, 2, 3, 5, 6, 8, 13, 15]
    [merged] = files(lake, "compacted/silver")
    with merged.open() as file:
        assert "typed_value" in str(pq.read_schema(file))


def names(lake: Lake, table: str) -> list[tuple[str, int, int]]:
    found = []
    for file in files(lake, table):
        first, last = file.name.removesuffix(".parquet").split("-")
        found.append((file.parent.name.removeprefix("day="), int(first), int(last)))
    return found


def call(command: str, lake: str, *words: str) -> Result:
    return CliRunner().invoke(app, [command, "--lake", lake, *words])


def seen_by_arrow(bucket: str) -> list[int]:
    """By a reader that knows nothing of Penstock."""
    store, path = fs.FileSystem.from_uri(f"{bucket}/a/lake/bronze")
    rows = ds.dataset(path, filesystem=store, format="parquet", partitioning="hive").to_table()
    return sorted(rows["index"].to_pylist())

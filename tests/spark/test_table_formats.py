"""Delta and Iceberg: their jars are for older Sparks, so each has an environment of its own.

`SPARK_WITH_DELTA=<python>:<jar>,<jar>` and `SPARK_WITH_ICEBERG=…` name them; see docs/pipeline.md.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.pipeline import app
from penstock.client import Client
from penstock.errors import InvalidArgument
from penstock.pipeline.jars import check_jars
from penstock.pipeline.lake import Lake
from penstock.pipeline.report import Report
from penstock.pipeline.run import compact
from penstock.pipeline.status import status_of
from tests.client.server import Server
from tests.docs.page import ROOT
from tests.spark.helpers import OPTIONS, QUICK
from tests.spark.process import Driver

LIMIT_SECONDS = 280


def _environment(kind: str) -> tuple[str, str]:
    python, _, jars = os.environ.get(f"SPARK_WITH_{kind.upper()}", "").partition(":")
    if not jars:
        pytest.skip(
            f"needs a Python and jars of its own: SPARK_WITH_{kind.upper()}=<python>:<jars>"
        )
    return python, jars


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_has_each_message_once_also_when_a_batch_is_run_again(
    server: Server, client: Client, queue: str, tmp_path: Path, kind: str
) -> None:
    python, jars = _environment(kind)
    client.publish(queue, [b"body %d" % n for n in range(100)])
    options = {
        "url": server.url,
        **OPTIONS,
        "subscribe": queue,
        "subscription": "lake",
        "maxOffsetsPerTrigger": "40",
    }
    given = {"kind": kind, "jars": jars, "where": str(tmp_path), "options": options}

    done = subprocess.run(
        [python, "-m", "tests.spark.table_formats", json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["first"], counts["second"]) == (100, 100)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("kind", "compacts"),
    [("delta", "Delta compacts them by itself"), ("iceberg", "rewrite_data_files")],
)
def test_a_lake_has_each_message_once_whatever_step_it_was_ended_at(
    server: Server,
    client: Client,
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    compacts: str,
) -> None:
    python, jars = _environment(kind)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    client.publish(queue, [b'{"n": %d}' % n if n % 10 else b"no" for n in range(100)])
    command: dict[str, object] = {
        "lake": str(tmp_path / "lake"),
        "format": kind,
        "jars": jars,
        "options": {"url": server.url, **OPTIONS},
        "settings": {**QUICK, "spark.databricks.delta.snapshotPartitions": "1"},
        "queue": queue,
        "max_rows": 30,
    }

    def driver(**more: object) -> Driver:
        log = tmp_path / "driver.log"
        return Driver({**command, **more}, log, program="tests.spark.lake_driver", python=python)

    # When it ends before the rows are appended, and then, having made up for it, right after that,
    for end in ("before", "after"):
        with driver(end=end) as ending:
            ending.wait_for("ended")
    with driver() as whole:
        seen = json.loads(whole.wait_for("seen").removeprefix("seen "))

    assert seen["bronze"] == list(range(100))
    assert seen["rejects"] == list(range(0, 100, 10))
    assert sorted([*seen["silver"], *seen["rejects"]]) == list(range(100))
    assert seen["published"] == 100
    assert seen["backlogs"] == {"default": 100, "pipeline": 0, "other": 5}
    floors = {
        each.name: each.lowest_unacked_index for each in client.queue_stats(queue).subscriptions
    }
    assert floors["pipeline"] == 100
    lake = Lake(tmp_path / "lake")
    assert status_of(lake).behind == {"silver": 0, "gold": 0}
    assert "messages/min" in Report(lake).html()
    with pytest.raises(InvalidArgument, match=f"are {kind} and cannot become parquet"):
        lake.choose_format("parquet")
    with pytest.raises(InvalidArgument, match=compacts):
        compact(lake, lambda: pytest.fail("Spark is not needed to refuse this"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--format", "delta", "--fetch-jars"], "there is no Delta for Spark 4.3"),
        (["--format", "delta"], "there is no Delta for Spark 4.3"),
        (
            ["--format", "iceberg", "--fetch-jars"],
            "there is no Iceberg for Spark 4.3, only",
        ),
        (["--format", "iceberg"], "there is no Iceberg for Spark 4.3, only"),
        (["--format", "hudi"], "use parquet or delta or iceberg"),
    ],
)
def test_a_format_that_this_spark_cannot_have_is_refused_with_what_to_do(
    spark: SparkSession, tmp_path: Path, words: list[str], told: str
) -> None:
    lake = tmp_path / "lake"

    done = CliRunner().invoke(app, ["run", "--once", "--lake", str(lake), *words])

    assert done.exit_code == 1
    assert told in " ".join(done.output.split())
    assert not (lake / "_penstock" / "format").exists()
    # And a session that was there before goes on as it was
    assert spark.sql("SELECT 1").count() == 1


def test_iceberg_on_s3_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidArgument, match="a lake in Iceberg is a directory"):
        Lake(bucket).choose_format("iceberg")


def test_s3_without_its_jars_is_refused_with_what_to_do(spark: SparkSession, bucket: str) -> None:
    with pytest.raises(InvalidArgument, match=r"--fetch-jars, or give it .*hadoop-aws:3\.5\."):
        check_jars(spark, Lake(bucket))

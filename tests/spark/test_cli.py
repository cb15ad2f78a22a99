"""``penstock pipeline`` on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from penstock.cli.pipeline import app
from penstock.pipeline.lake import Lake
from tests.spark.helpers import QUICK, World

LIMIT_SECONDS = 120


def call(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=answer)


@pytest.fixture
def settings_stay(spark: SparkSession) -> Iterator[None]:
    """The command gives the session of all tests the settings of a pipeline."""
    yield
    for name, value in QUICK.items():
        if name.startswith("spark.sql."):
            spark.conf.set(name, value)


@pytest.mark.usefixtures("settings_stay")
def test_a_lake_from_its_first_run_to_its_end(world: World, queue: str, tmp_path: Path) -> None:
    lake = ["--lake", str(tmp_path / "lake")]
    there = ["--url", world.options["url"], "--master", "local[2]"]
    world.publish(queue, 5)

    ran = call("run", "--once", "--queues", queue, *lake, *there)
    assert ran.exit_code == 0, ran.output
    status = json.loads(call("status", "--json", *lake).stdout)
    assert status["landed"] == {queue: 5}
    assert call("report", *lake).exit_code == 0
    assert (tmp_path / "lake" / "report.html").exists()

    counted = call("replay", "--where", "index > 2", "--to", queue, "--dry-run", *lake, *there)
    assert "2 messages would go to" in counted.output
    assert world.client.queue_stats(queue).messages == 5

    assert call("compact", *lake).exit_code == 0
    assert call("reset", *lake, answer="n\n").exit_code == 1
    assert (tmp_path / "lake" / "bronze").exists()
    assert call("reset", "--yes", *lake).exit_code == 0
    assert list((tmp_path / "lake").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["status"], "is not a lake: run the pipeline first"),
        (["run", "--queues", "a", "--pattern", "b"], "contradict each other"),
        (["run", "--lake", "ftp://host/lake"], "is neither a directory nor s3://bucket/path"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = call(*words)

    assert done.exit_code == 1
    assert told in done.output


def test_a_spark_that_does_not_start_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()", "pipeline", "run"],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 1
    log = tmp_path / "lake" / "_penstock" / "spark.log"
    assert f"Spark did not start: {log} has the reason" in "".join(done.stderr.splitlines())
    assert "nowhere" in log.read_text()


def test_a_setting_that_is_none_is_refused(lake: Lake) -> None:
    done = call("run", "--lake", str(lake.root), "--conf", "spark.some.thing")

    assert done.exit_code == 1
    assert "the Spark setting 'spark.some.thing' is not name=value" in " ".join(done.output.split())


def test_a_lake_that_is_in_use_is_left_alone(lake: Lake) -> None:
    with lake.lock():
        done = call("reset", "--yes", "--lake", str(lake.root))

    assert done.exit_code == 1
    assert "lake_in_use" in done.output

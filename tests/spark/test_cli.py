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

from penstock.cli import exits
from penstock.cli.pipeline import app
from penstock.pipeline import gold, silver
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.queries import failed
from penstock.pipeline.session import check_master
from tests.spark import landings
from tests.spark.helpers import QUICK, World

LIMIT_SECONDS = 120


def call(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=answer)


def penstock(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()", "pipeline", *words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


@pytest.fixture
def settings_stay(spark: SparkSession) -> Iterator[None]:
    """The command gives the session of all tests the settings of a pipeline."""
    yield
    for name, value in QUICK.items():
        if name.startswith("spark.sql."):
            spark.conf.set(name, value)


def test_types_of_bodies_are_given_in_a_file(world: World, queue: str, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas.json"
    where = ["--queues", queue, "--url", world.options["url"], "--master", "local[1]"]
    told = [*where, "--once", "--schemas", str(schemas)]
    world.client.publish(queue, [b'{"id": 1}', b'{"id": "x"}'])

    # In a process of its own, because Spark must not have been started before.
    schemas.write_text(f'{{"{queue}": "id INT"}}')
    ran = penstock("run", *told, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    status = json.loads(penstock("status", "--json", cwd=tmp_path).stdout)
    rows = {each["table"]: each["rows"] for each in status["tables"]}
    assert rows == {"bronze": 2, "rejects": 1, f"typed-{queue}": 1}

    schemas.write_text(f'{{"{queue}": "id NUMBERS"}}')
    wrong = penstock("run", *told, cwd=tmp_path)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(f"invalid_argument: the schema of queue '{queue}' is not DDL")
    schemas.write_text("id INT")
    wrong = penstock("run", *told, cwd=tmp_path)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(f"invalid_argument: {schemas} is not JSON")


@pytest.mark.usefixtures("settings_stay")
def test_a_lake_from_its_first_run_to_its_end(world: World, queue: str, tmp_path: Path) -> None:
    lake = ["--lake", str(tmp_path / "lake")]
    there = ["--url", world.options["url"], "--master", "local[2]"]
    world.publish(queue, 5)

    ran = call("run", "--once", "--queues", f"{queue},nobody", *lake, *there)
    assert ran.exit_code == 0, ran.output
    assert "There is no queue nobody to land." in ran.stderr
    assert f"There is no queue {queue}" not in ran.stderr
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
        (["run", "--queues", "a,b c"], "queue name 'b c' is not allowed: use 1 to 50 letters"),
        (["run", "--queues", "orders-dlq"], "orders-dlq holds dead letters, which a pipeline does"),
        (["run", "--queues", ""], "name no queue when they are empty: leave both out for all"),
        (["run", "--queues", ","], "name no queue when they are empty"),
        (["run", "--pattern", ""], "name no queue when they are empty"),
        (["run", "--pattern", "["], "subscribePattern is not a regular expression"),
        (["run", "--subscription", "a b"], "subscription name 'a b' is not allowed"),
        (["run", "--lake", ""], "'' is neither a directory nor s3://bucket/path"),
        (["replay", "--where", "true", "--to", "b c"], "queue name 'b c' is not allowed"),
        (["run", "--lake", "lake[1]"], "because Spark takes '[' in the path of a file for a"),
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
    assert list(tmp_path.iterdir()) == []


def test_a_spark_that_does_not_start_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = penstock("run", cwd=tmp_path, JAVA_HOME=str(tmp_path / "nowhere"))

    assert done.returncode == 1
    log = tmp_path / "lake" / "_penstock" / "spark.log"
    assert f"Spark did not start: {log} has the reason" in "".join(done.stderr.splitlines())
    assert "nowhere" in log.read_text()


@pytest.mark.usefixtures("settings_stay")
@pytest.mark.parametrize("more", [[], ["--queues", "orders"]])
def test_a_run_that_the_server_does_not_allow_has_the_exit_code_of_that(
    world: World, tmp_path: Path, more: list[str]
) -> None:
    where = ["--lake", str(tmp_path / "lake"), "--url", world.options["url"]]
    who = ["--user", "admin", "--password", "wrong"]

    done = call("run", "--once", "--master", "local[2]", *where, *who, *more)

    assert done.exit_code == exits.DENIED
    assert "unauthorized: name and password, or the token, are missing or wrong" in done.stderr


@pytest.mark.usefixtures("settings_stay")
def test_a_run_that_misses_messages_names_its_own_option(
    world: World, queue: str, tmp_path: Path
) -> None:
    world.client.create_subscription(queue, "pipeline", start="earliest")
    world.publish(queue, 2)
    world.client.purge_queue(queue)
    where = ["--lake", str(tmp_path / "lake"), "--url", world.options["url"]]
    run = ["run", "--once", "--queues", queue, "--master", "local[2]", *where]
    assert call(*run).exit_code == 0
    world.publish(queue, 2)
    world.client.purge_queue(queue)

    done = call(*run)

    assert done.exit_code == exits.REFUSED
    assert "2 messages are gone that were not read yet: index 2 to 3" in done.stderr
    assert done.stderr.rstrip().endswith("--ignore-data-loss")
    assert call(*run, "--ignore-data-loss").exit_code == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("penstock.spark.errors.Unreachable: http://h could not do it", "unreachable"),
        ("penstock.spark.errors.Refused: forbidden: this needs ADMIN", "forbidden"),
        ("penstock.spark.errors.DataLoss: messages are gone", "data_loss"),
        ("java.lang.OutOfMemoryError: Java heap space", ""),
    ],
)
def test_a_failed_query_knows_what_the_server_answered(text: str, code: str) -> None:
    error = failed("the stream ended", RuntimeError(f"Traceback:\n  File x\n{text}"))

    assert error.reason == code


def test_a_wrong_condition_is_told_in_one_line(lake: Lake, tmp_path: Path) -> None:
    landings.land(Landing(lake, "bronze"), 0, 10)
    where = ["--lake", str(lake.root), "--master", "local[1]"]

    done = penstock("replay", "--where", "no_such = 1", "--to", "q", *where, cwd=tmp_path)

    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    told = "invalid_argument: --where is not a condition over bronze: [UNRESOLVED_COLUMN"
    assert line.startswith(told)


@pytest.mark.parametrize("command", [["run"], ["compact"], ["replay", "--where", "1", "--to", "q"]])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--conf", "spark.some.thing"], "the Spark setting 'spark.some.thing' is not name=value"),
        (["--conf", "=x"], "the Spark setting '=x' is not name=value"),
        (["--conf", "spark.sql.session.timeZone=CET"], "timeZone is UTC in a pipeline: leave it"),
        (["--master", "local[x]"], "'local[x]' is not a Spark master: use local[*]"),
        (["--master", "somewhere"], "'somewhere' is not a Spark master: use local[*]"),
    ],
)
def test_what_spark_would_not_understand_is_refused_even_if_it_were_not_needed(
    lake: Lake, command: list[str], words: list[str], told: str
) -> None:
    landings.land(Landing(lake, "bronze"), 0, 10)

    done = call(*command, "--lake", str(lake.root), *words)

    assert done.exit_code == 1
    assert told in " ".join(done.output.split())


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[2]", "local[2, 3]", "local-cluster[2, 1, 1024]", "yarn"),
        *("spark://host:7077", "spark://one:7077,two:7077", "k8s://https://host:6443"),
    ],
)
def test_masters_that_spark_knows_are_not_refused(master: str) -> None:
    check_master(master)


def test_a_master_that_does_not_answer_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = penstock("run", "--master", "spark://host:port:1", cwd=tmp_path)

    assert done.returncode == 1
    assert "Spark did not start: org.apache.spark.SparkException" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_compaction_shows_what_it_is_at(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (0, 10, 20):
        landings.land(Landing(lake, "bronze"), first, 10)
    # Given that the others have read these
    for job in (silver.JOB, gold.JOB):
        Landing(lake, job).land({"bronze": 3}, [])
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")

    done = call("compact", "--lake", str(lake.root))

    assert done.exit_code == 0
    assert "became" in done.stderr
    assert f"queue=orders/day={landings.DAY}" in done.stderr


def test_a_reset_leaves_alone_what_is_not_the_lake_s(lake: Lake) -> None:
    """It may be in a directory with other things, or at the root of a bucket."""
    landings.land(Landing(lake, "bronze"), 0, 10)
    for mine in ("typed-orders/part.parquet", "compacted/bronze/part.parquet", "report.html"):
        lake.table(mine).replace(b"")
    for other in ("notes.txt", "work/gold/figures.csv"):
        lake.table(other).replace(b"")

    done = call("reset", "--lake", str(lake.root), answer="y\n")

    assert done.exit_code == 0, done.output
    left = sorted(file.below(lake.root) for file in lake.root.files())
    assert left == ["notes.txt", "work/gold/figures.csv"]
    assert [each.name for each in lake.root.children()] == ["notes.txt", "work"]


def test_a_lake_that_is_in_use_is_left_alone(lake: Lake) -> None:
    with lake.lock():
        done = call("reset", "--yes", "--lake", str(lake.root))

    assert done.exit_code == 1
    assert "lake_in_use" in done.output

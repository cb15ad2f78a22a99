"""Executors that are processes of their own, Spark Connect, and the declarative runner."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from penstock.client import Client
from tests.client.server import Server
from tests.docs.page import ROOT
from tests.spark.helpers import OPTIONS, QUICK
from tests.spark.process import Driver

LIMIT_SECONDS = 280

pytestmark = pytest.mark.skipif(
    not (os.environ.get("CI") or os.environ.get("PENSTOCK_SPARK_ALL")),
    reason="each of these takes most of a minute: set PENSTOCK_SPARK_ALL=1",
)


@pytest.mark.usefixtures("java")
def test_executors_in_other_processes_read_and_write(
    server: Server, client: Client, queue: str, tmp_path: Path
) -> None:
    target = f"{queue}-out"
    client.create_queue(target)
    client.publish(queue, [b"body %d" % n for n in range(2000)])
    command: dict[str, Any] = {
        "master": "local-cluster[2,1,1024]",
        "lake": str(tmp_path / "lake"),
        "options": {"url": server.url, **OPTIONS, "minPartitions": "4"},
        "write_options": {"url": server.url, **OPTIONS},
        "queue": queue,
        "target": target,
        "once": True,
        "settings": {"spark.executor.memory": "512m"},
    }

    with Driver(command, tmp_path / "driver.log") as driver:
        driver.wait_for("done")

    rows = ds.dataset(tmp_path / "lake" / "bronze", partitioning="hive").to_table()
    assert sorted(rows["index"].to_pylist()) == list(range(2000))
    assert client.queue_stats(target).messages == 2000


CONNECT = """
import json, sys
from pyspark.sql import SparkSession
source, target = json.loads(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").getOrCreate()
rows = spark.read.format("penstock").options(**source).load()
print("read", rows.count(), flush=True)
rows.select("body").write.format("penstock").options(**target).mode("append").save()
"""


@pytest.mark.usefixtures("java")
def test_a_connect_client_reads_and_writes_batches(
    server: Server, client: Client, queue: str
) -> None:
    target = f"{queue}-out"
    client.create_queue(target)
    client.publish(queue, [b"a", b"b", b"c"])
    options = {"url": server.url, **OPTIONS}
    given = json.dumps([{**options, "subscribe": queue}, {**options, "queue": target}])

    done = subprocess.run(
        [sys.executable, "-c", CONNECT, given],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "read 3" in done.stdout
    assert client.queue_stats(target).messages == 3


@pytest.mark.usefixtures("java")
def test_the_declarative_example_runs(
    server: Server, client: Client, queue: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "declarative-pipeline", project)
    spec = project / "spark-pipeline.yml"
    storage = f"storage: file://{project}/storage"
    spec.write_text(
        spec.read_text().replace("storage: file:///tmp/penstock-declarative-pipeline", storage)
    )
    client.publish(queue, [b"a", b"b", b"c"])
    environment = {
        **os.environ,
        "PENSTOCK_URL": server.url,
        "PENSTOCK_USER": "admin",
        "PENSTOCK_PASSWORD": "adminpassword",
        "PENSTOCK_QUEUE": queue,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    java = QUICK["spark.driver.extraJavaOptions"]

    done = subprocess.run(
        ["spark-pipelines", "--conf", f"spark.driver.extraJavaOptions={java}", "run"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = ds.dataset(project / "spark-warehouse" / "orders_by_topic", exclude_invalid_files=True)
    assert found.to_table().to_pylist() == [{"topic": None, "messages": 3}]

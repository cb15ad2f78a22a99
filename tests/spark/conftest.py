"""A real Spark, one session for all tests of this folder, and real servers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import boto3
import pytest
from pyspark.sql import SparkSession

from penstock.client import Client
from penstock.pipeline.lake import Lake
from penstock.pipeline.session import make_session
from tests.client.server import Server
from tests.spark.helpers import OPTIONS, QUICK, World, admin
from tests.spark.object_store import environment, object_store
from tests.spark.quick import archive_path, archived

_JAVA = 17
_numbers = count()


def _java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not Path(java).exists():
        return ""
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


@pytest.fixture(scope="session")
def java() -> str:
    """What it says of its version."""
    told = _java_version()
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < _JAVA:
        text = f"Spark needs Java {_JAVA}: apt-get install openjdk-{_JAVA}-jre-headless"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return told


@pytest.fixture(scope="session")
def archive(java: str, request: pytest.FixtureRequest) -> Path:
    """Of the classes that Spark loads, kept from one run of the tests to the next."""
    assert request.config.cache is not None
    return archive_path(request.config.cache.mkdir("spark"), java)


@pytest.fixture(scope="session")
def spark(archive: Path) -> Iterator[SparkSession]:
    session = make_session("local[2]", settings={**QUICK, **archived(archive)})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that do not stop it; they keep apart by queue."""
    with Server("memory:", tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with admin(server.url) as client:
        yield client


@pytest.fixture
def queue(client: Client) -> str:
    name = f"spark-{next(_numbers)}"
    client.create_queue(name)
    return name


@pytest.fixture
def world(spark: SparkSession, server: Server, client: Client) -> World:
    return World(spark, client, {"url": server.url, **OPTIONS})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an object store; tests keep apart by bucket."""
    with object_store(tmp_path_factory.mktemp("store") / "log") as url:
        yield url


@pytest.fixture
def bucket(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """``s3://…``, where this process and those that it starts find it."""
    for name, value in environment(store).items():
        monkeypatch.setenv(name, value)
    name = f"lake-{next(_numbers)}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture(params=["disk", "s3"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "disk":
        return Lake(tmp_path / "lake")
    return Lake(f"{request.getfixturevalue('bucket')}/lake")

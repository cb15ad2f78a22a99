"""What makes Spark start sooner, without a change in what it does.

A JVM spends half of its start on reading and verifying classes. An archive of them is mapped
instead: the JVM of a driver with two streams took 12 s of processor time, and then 6 s.

As a program this makes the archive.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from penstock.pipeline.session import make_session
from tests.spark.helpers import QUICK

__all__ = ["archive_path", "archived", "make_archive"]

_OPTIONS = "spark.driver.extraJavaOptions"
_LIMIT_SECONDS = 240


def archive_path(directory: Path, java: str) -> Path:
    """Of this Spark and this Java: the JVM would ignore one of another."""
    key = hashlib.sha256(f"{java} {pyspark.__version__} {pyspark.__file__}".encode())
    return directory / f"{key.hexdigest()[:16]}.jsa"


def archived(archive: Path) -> dict[str, str]:
    """Settings of a session that uses it, if there is one."""
    if not archive.exists():
        return {}
    return {_OPTIONS: f"{QUICK[_OPTIONS]} -XX:SharedArchiveFile={archive}"}


def make_archive(archive: Path) -> None:
    """If there is none."""
    if archive.exists():
        return
    fresh = archive.with_suffix(f".{os.getpid()}")
    command = [sys.executable, "-m", "tests.spark.quick", str(fresh)]
    subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_SECONDS)
    fresh.rename(archive)


def main() -> None:
    options = f"{QUICK[_OPTIONS]} -XX:ArchiveClassesAtExit={sys.argv[1]}"
    spark = make_session("local[2]", settings={**QUICK, _OPTIONS: options})
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = rows.writeStream.format("noop").trigger(once=True).start()
    query.awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    # The JVM ends with its input, and writes the archive then.
    gateway.proc.stdin.close()
    gateway.proc.wait(_LIMIT_SECONDS)


if __name__ == "__main__":
    main()

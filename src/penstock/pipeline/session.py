"""The Spark session of a pipeline."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import InvalidArgument

__all__ = ["check_master", "make_quiet_session", "make_session", "settings_of"]

_SETTINGS = {
    # Days are in UTC everywhere.
    "spark.sql.session.timeZone": "UTC",
    # A queue named 2030 is a string.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Files of several queues and days are written side by side, without sorting the rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Shredding stores common paths of JSON bodies as columns of their own.
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.inferShreddingSchema": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


# The tables would be wrong with others.
_FIXED = ("spark.sql.session.timeZone", "spark.sql.sources.partitionColumnTypeInference.enabled")


# For a local master. Over TCP the tasks of a small batch took 114 to 131 ms, over Unix sockets 50
# to 74 ms.
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
}
# For a local master that runs the Spark of the installed PySpark.
_INSTALLED = {"spark.python.daemon.module": "penstock.pipeline.daemon"}


# Of PySpark, which writes a line of JSON with the traces to stderr for each error that it raises.
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# What Spark itself understands.
_MASTER = re.compile(
    r"local|local\[(\d+|\*)(\s*,\s*\d+)?\]|local-cluster\[[\d\s]+,[\d\s]+,[\d\s]+\]"
    r"|yarn|spark://.+:\d+|k8s://.+"
)


def check_master(master: str | None) -> None:
    """Raises `InvalidArgument` for what Spark would not understand."""
    if master is not None and not _MASTER.fullmatch(master):
        raise InvalidArgument(
            f"{master!r} is not a Spark master: use local[*], local[4], spark://host:port, yarn or "
            "k8s://…"
        )


def settings_of(given: Iterable[str]) -> dict[str, str]:
    """From ``name=value``. Raises `InvalidArgument`."""
    settings = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise InvalidArgument(f"the Spark setting {each!r} is not name=value")
        if name in _FIXED and value != _SETTINGS[name]:
            raise InvalidArgument(f"{name} is {_SETTINGS[name]} in a pipeline: leave it out")
        settings[name] = value
    return settings


def make_session(
    master: str | None = None,
    *,
    memory: str = "1g",
    settings: dict[str, str] | None = None,
    is_shielded: bool = False,
) -> SparkSession:
    """A new session, or the existing one with these settings. Without ``master``, Spark decides.

    With ``is_shielded``, signals for the process group, such as Ctrl-C, reach this process alone,
    which can then stop Spark in good order: Spark and its workers are in a group of their own. They
    end with this process nevertheless.
    """
    every = {**_SETTINGS, "spark.app.name": "penstock-pipeline", "spark.driver.memory": memory}
    if master is not None:
        every["spark.master"] = master
        if master.startswith("local"):
            every |= _LOCAL
            if "SPARK_HOME" not in os.environ:
                every |= _INSTALLED
            # Workers run in the environment that has Penstock.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    every |= settings or {}
    if is_shielded and SparkSession.getActiveSession() is None:
        conf = SparkConf().setAll(list(every.items()))
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    builder = SparkSession.builder
    for name, value in every.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def make_quiet_session(
    log: Path, master: str | None, *, memory: str, settings: dict[str, str] | None = None
) -> SparkSession:
    """Like `make_session`, shielded, with the stderr of Spark, mostly noise, in ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    screen = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)  # the JVM that is started now inherits it
            session = make_session(master, memory=memory, settings=settings, is_shielded=True)
    finally:
        os.dup2(screen, 2)
        os.close(screen)
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    return session

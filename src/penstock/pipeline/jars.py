"""Jars that a lake needs and PySpark does not include, and how Spark gets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import InvalidArgument
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake import DELTA, ICEBERG, Lake
from penstock.pipeline.session import check_master, make_quiet_session, settings_of

__all__ = ["CATALOG", "check_jars", "lake_session", "lake_settings"]

_SDK = "2.35.4"
# What S3A needs of Amazon's SDK: 14 MB with dependencies; the bundle has 686 MB.
_SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
# The name of the Iceberg catalog in Spark.
CATALOG = "penstock"
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Small files of a partition become a large one after a write.
    "spark.databricks.delta.autoCompact.enabled": "true",
}


class _Jars(NamedTuple):
    """`packages` and `excludes` are Maven coordinates; `known_by` is a class in one of them.

    If there are no packages for this Spark, `instead` says what to do.
    """

    purpose: str
    known_by: str
    packages: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    instead: str = ""


class _Format(NamedTuple):
    """A table format. `versions` maps Spark versions to its own, since each jar is for one."""

    name: str
    known_by: str
    package: str
    versions: dict[str, str]


# As of November 2026, there are none for newer versions of Spark.
_FORMATS = {
    DELTA: _Format(
        "Delta",
        known_by="io.delta.sql.DeltaSparkSessionExtension",
        package="io.delta:delta-spark_{spark}_2.13:{version}",
        versions={"4.1": "4.4.0", "4.2": "4.4.0"},
    ),
    ICEBERG: _Format(
        "Iceberg",
        known_by="org.apache.iceberg.spark.SparkCatalog",
        package="org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{version}",
        versions={"4.1": "1.12.0"},
    ),
}


def lake_session(
    lake: Lake, master: str | None, *, memory: str, settings: list[str] | None, fetch_jars: bool
) -> Callable[[], SparkSession]:
    """What starts a session that can read and write the lake.

    ``settings`` are more Spark settings, name=value. Raises `InvalidArgument` at once for what
    Spark would not understand.
    """
    check_master(master)
    chosen = lake_settings(lake, fetch=fetch_jars) | settings_of(settings or ())
    return lambda: _start(lake, master, memory, chosen)


def _start(lake: Lake, master: str | None, memory: str, chosen: dict[str, str]) -> SparkSession:
    """Raises `PipelineError` if Spark does not start, or `InvalidArgument` if it lacks jars."""
    log = lake.spark_log
    try:
        spark = make_quiet_session(log, master, memory=memory, settings=chosen)
    except Py4JJavaError as exc:
        raise PipelineError(f"Spark did not start: {exc.java_exception}") from exc
    except PySparkException as exc:
        raise PipelineError(f"Spark did not start: {log} has the reason") from exc
    try:
        check_jars(spark, lake)
    except InvalidArgument:
        # The session may be used further, and the settings refer to classes that are missing.
        for name in filter(spark.conf.isModifiable, chosen):
            spark.conf.unset(name)
        raise
    return spark


def lake_settings(lake: Lake, *, fetch: bool) -> dict[str, str]:
    """The settings of a session for the lake.

    With ``fetch``, Spark downloads the jars from Maven Central when it starts, and caches them.
    """
    settings = _format_settings(lake)
    needed = _needed(lake) if fetch else []
    for each in needed:
        if not each.packages:
            raise InvalidArgument(each.instead)
    if needed:
        settings["spark.jars.packages"] = ",".join(n for each in needed for n in each.packages)
        settings["spark.jars.excludes"] = ",".join(n for each in needed for n in each.excludes)
    return settings


def _format_settings(lake: Lake) -> dict[str, str]:
    if lake.format == DELTA:
        return dict(_DELTA_SETTINGS)
    if lake.format == ICEBERG:
        name = f"spark.sql.catalog.{CATALOG}"
        return {
            name: "org.apache.iceberg.spark.SparkCatalog",
            # A table is a directory in the lake.
            f"{name}.type": "hadoop",
            f"{name}.warehouse": str(lake.root),
            # Others, such as a compaction, may change a table.
            f"{name}.cache-enabled": "false",
        }
    return {}


def check_jars(spark: SparkSession, lake: Lake) -> None:
    """Raises `InvalidArgument` if the session lacks jars that the lake needs."""
    for each in _needed(lake):
        if not _has(spark, each.known_by):
            raise InvalidArgument(
                each.instead
                or f"{each.purpose} needs jars that this Spark does not have: let it fetch them "
                f"with --fetch-jars, or give it {', '.join(each.packages)}"
            )


def _needed(lake: Lake) -> list[_Jars]:
    needed = [] if lake.root.is_local else [_s3()]
    return [*needed, _of_format(_FORMATS[lake.format])] if lake.format in _FORMATS else needed


def _s3() -> _Jars:
    return _Jars(
        purpose="a lake on S3",
        known_by="org.apache.hadoop.fs.s3a.S3AFileSystem",
        packages=(
            f"org.apache.hadoop:hadoop-aws:{_hadoop_version()}",
            *(f"software.amazon.awssdk:{part}:{_SDK}" for part in _SDK_PARTS),
        ),
        excludes=(
            "software.amazon.awssdk:bundle",
            "org.wildfly.openssl:wildfly-openssl",
            # Spark has a newer one.
            "io.netty:*",
        ),
    )


def _hadoop_version() -> str:
    """The version of Spark's Hadoop jars, which hadoop-aws must have as well."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def _of_format(each: _Format) -> _Jars:
    purpose = f"a lake in {each.name}"
    spark = ".".join(pyspark.__version__.split(".")[:2])
    if spark in each.versions:
        package = each.package.format(spark=spark, version=each.versions[spark])
        return _Jars(purpose, each.known_by, packages=(package,))
    return _Jars(
        purpose,
        each.known_by,
        instead=f"there is no {each.name} for Spark {spark}, only for "
        f"{' and '.join(each.versions)}: in an environment of its own, pip install penstock "
        f"'pyspark=={max(each.versions)}.*' pyarrow 'pandas<3'",
    )


def _has(spark: SparkSession, name: str) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(f"{name.replace('.', '/')}.class") is not None

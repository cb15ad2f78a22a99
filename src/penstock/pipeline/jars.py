"""Jars that PySpark does not bring: what a lake needs, and where Spark finds it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyspark
from pyspark.sql import SparkSession

from penstock.errors import InvalidArgument

__all__ = ["Jars", "check_jars", "jar_settings", "s3_jars"]

_SDK = "2.35.4"
# What S3A uses of Amazon's SDK, 14 MB with all they need; its bundle has 686 MB.
_SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")


class Jars(NamedTuple):
    """`packages` and `excludes` are Maven coordinates; `known_by` is a class in one of them."""

    purpose: str
    known_by: str
    packages: tuple[str, ...]
    excludes: tuple[str, ...] = ()


def s3_jars() -> Jars:
    """Spark reads and writes ``s3a://`` with them."""
    return Jars(
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
    """Both have to be of one version."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def jar_settings(needed: Iterable[Jars]) -> dict[str, str]:
    """With these Spark fetches them when a session begins, and keeps them for the next."""
    every = list(needed)
    if not every:
        return {}
    return {
        "spark.jars.packages": ",".join(name for each in every for name in each.packages),
        "spark.jars.excludes": ",".join(name for each in every for name in each.excludes),
    }


def check_jars(spark: SparkSession, needed: Iterable[Jars]) -> None:
    """Raises `InvalidArgument` if the session lacks any of them."""
    for each in needed:
        if not _has(spark, each.known_by):
            raise InvalidArgument(
                f"{each.purpose} needs jars that this Spark does not have: let it fetch them with "
                f"--fetch-jars, or give it {', '.join(each.packages)}"
            )


def _has(spark: SparkSession, name: str) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    # The error of a class that is missing comes as one of several of Py4J's.
    path = name.replace(".", "/") + ".class"
    return loader.getResource(path) is not None

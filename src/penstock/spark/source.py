"""The four uses of the format: from options to the objects that Spark needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidArgument
from penstock.spark.options import ReadOptions, read_options, write_options
from penstock.spark.reader import PenstockReader, PushingReader
from penstock.spark.schema import read_schema
from penstock.spark.stream_reader import PenstockStreamReader
from penstock.spark.versions import as_asked
from penstock.spark.writer import PenstockStreamWriter, PenstockWriter, check_columns

__all__ = ["reader", "schema", "stream_reader", "stream_writer", "writer"]


def schema(options: Mapping[str, str]) -> StructType:
    return read_schema(read_options(options, "schema"))


def reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    checked = read_options(options, "batch")
    _check_schema(checked, schema)
    return (PushingReader if checked.push_filters else PenstockReader)(checked, schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    checked = read_options(options, "stream")
    _check_schema(checked, schema)
    return as_asked(PenstockStreamReader(checked, schema))


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    checked = write_options(options, is_stream=False)
    _check_append(overwrite)
    check_columns(schema, checked)
    return PenstockWriter(checked, checked.idempotency_key or str(uuid.uuid4()))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamWriter:
    checked = write_options(options, is_stream=True)
    _check_append(overwrite)
    check_columns(schema, checked)
    return PenstockStreamWriter(checked)


def _check_append(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgument("a queue cannot be overwritten: use the mode append")


def _check_schema(options: ReadOptions, schema: StructType) -> None:
    """Refuse a schema from the user that differs: it could not change what the server sends."""
    given = [(field.name, field.dataType) for field in schema.fields]
    if given != [(field.name, field.dataType) for field in read_schema(options).fields]:
        raise InvalidArgument("the schema of the format is fixed: leave .schema(...) out")

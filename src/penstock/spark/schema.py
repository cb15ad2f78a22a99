"""The columns, with their types in Spark and in Arrow."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.options import ReadOptions

__all__ = ["Shaper", "read_schema"]


def read_schema(options: ReadOptions) -> StructType:
    if options.is_events:
        return _EVENTS
    fields = list(_MESSAGES.fields)
    if not options.include_body:
        fields = [field for field in fields if field.name != "body"]
    elif options.body_as_string:
        fields = [
            StructField("body", StringType()) if field.name == "body" else field for field in fields
        ]
    return StructType(fields + _HINTS.fields if options.include_hints else fields)


_MESSAGES = StructType(
    [
        StructField("queue", StringType()),
        StructField("index", LongType()),
        StructField("id", StringType()),
        StructField("body", BinaryType()),
        StructField("content_type", StringType()),
        StructField("attributes", MapType(StringType(), StringType())),
        StructField("topic", StringType()),
        StructField("priority", IntegerType()),
        StructField("group_key", StringType()),
        StructField("created_at", TimestampType()),
    ]
)
# Good columns to partition a table of messages by: time, and group.
_HINTS = StructType([StructField("day", DateType()), StructField("bucket", IntegerType())])
_BUCKETS = 1024
_EVENTS = StructType(
    [
        StructField("queue", StringType()),
        StructField("events_index", LongType()),
        StructField("index", LongType()),
        StructField("id", StringType()),
        StructField("event", StringType()),
        StructField("subscription", StringType()),
        StructField("deliveries", IntegerType()),
        StructField("reason", StringType()),
        StructField("topic", StringType()),
        StructField("published_at", TimestampType()),
        StructField("at", TimestampType()),
    ]
)

# For the columns above. Spark's own mapping is not public, and changes between versions.
_ARROW: dict[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    MapType: pa.map_(pa.string(), pa.string()),
}


class Shaper:
    """Converts a server's batch to the names, order and types that Spark expects.

    Nothing is copied if the types agree. In a body that is read as text, bytes that are not UTF-8
    are replaced by U+FFFD.
    """

    def __init__(self, schema: StructType) -> None:
        self.schema = pa.schema(
            [(field.name, _ARROW[type(field.dataType)]) for field in schema.fields]
        )

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [_fit(_column(batch, field.name), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name == "day":
        return batch.column("created_at").cast(pa.date32())
    if name == "bucket":
        keys = batch.column("group_key").dictionary_encode()
        buckets = [zlib.crc32(key.encode()) % _BUCKETS for key in keys.dictionary.to_pylist()]
        return pa.array(buckets, pa.int32()).take(keys.indices)
    return batch.column(name)


def _fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_binary(column.type) and pa.types.is_string(kind):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            texts = [
                None if body is None else body.decode("utf-8", "replace")
                for body in column.to_pylist()
            ]
            return pa.array(texts, kind)
    return pc.cast(column, kind)

"""Writing rows to queues from the executors: each chunk is one idempotent request.

The key of a chunk is query, batch, partition and number, so a batch that Spark runs again publishes
nothing twice, for as long as the queue remembers keys (`dedup_window_seconds`). This requires that
the rows come in the same order again, since chunks are cut by the sequence of rows alone. Rows that
have a `dedup_key` each may come in any order: their chunks have no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.errors import InvalidArgument
from penstock.spark.errors import Refused
from penstock.spark.http import ARROW, PACKED, server_of
from penstock.spark.options import WriteOptions, check_queue
from penstock.spark.worker import settle_in

__all__ = ["PenstockStreamWriter", "PenstockWriter", "Written", "check_columns"]

# Counting bodies only, so half of what a request may hold leaves room for the rest of each row.
_CHUNK_BYTES = 8 * 1024 * 1024

_TEXT = (StringType,)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "queue": _TEXT,
    "body": (BinaryType, StringType),
    "content_type": _TEXT,
    "attributes": (MapType,),
    "topic": _TEXT,
    "priority": (IntegerType,),
    "group_key": _TEXT,
    "dedup_key": _TEXT,
    "not_before": (TimestampType,),
}


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises `InvalidArgument` for a column that is unknown, missing, or of the wrong type."""
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise InvalidArgument(
                f"the column {field.name} cannot be written: select from {', '.join(_COLUMNS)}"
            )
        allowed = _COLUMNS[field.name]
        if not isinstance(field.dataType, allowed):
            kinds = " or ".join(kind.typeName() for kind in allowed)
            raise InvalidArgument(
                f"the column {field.name} is {field.dataType.simpleString()}: make it {kinds}"
            )
    names = schema.fieldNames()
    if "body" not in names:
        raise InvalidArgument("there is no column body: name the one that is to be the message so")
    if (options.queue is None) == ("queue" not in names):
        raise InvalidArgument(
            "give exactly one, the option queue or a column queue, to say where rows go"
        )


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has published."""

    rows: int


class PenstockWriter(DataSourceArrowWriter):
    """``key`` identifies this job. Tasks that are retried publish nothing twice."""

    def __init__(self, options: WriteOptions, key: str) -> None:
        self._options = options
        self._key = key

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(iterator, self._options, self._key)


class PenstockStreamWriter(DataSourceStreamArrowWriter):
    """A batch that is run again after a crash publishes nothing twice."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return _write(iterator, self._options, f"{query}/{batch}")


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows are written only by a Spark task")
    return context


def _write(iterator: Iterator[pa.RecordBatch], options: WriteOptions, key: str) -> Written:
    settle_in()
    prefix = f"{key}/{_task().partitionId()}"
    chunks: dict[str, _Chunks] = {}
    rows = 0
    with _Sender(options) as sender:
        for batch in iterator:
            rows += batch.num_rows
            for queue, part in _by_queue(batch, options.queue):
                if queue not in chunks:
                    chunks[queue] = _Chunks(queue, prefix, options.chunk_rows, sender)
                chunks[queue].add(part)
        for each in chunks.values():
            each.flush()
    return Written(rows)


def _by_queue(batch: pa.RecordBatch, queue: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if batch.column("body").null_count:
        raise InvalidArgument("a row has no body: a message may be empty, but not null")
    if queue is not None:
        yield queue, batch
        return
    queues = batch.column("queue")
    if queues.null_count:
        raise InvalidArgument("a row has no queue: every row must say where it goes")
    rest = batch.drop_columns(["queue"])
    for name in pc.unique(queues).to_pylist():
        check_queue(name)
        yield name, rest.filter(pc.equal(queues, name))


class _Chunks:
    """Gathers the rows of one queue, and publishes them whenever the next one does not fit."""

    def __init__(self, queue: str, prefix: str, most_rows: int, sender: _Sender) -> None:
        self._path = f"/v1/queues/{queue}/messages"
        self._prefix = prefix
        self._sender = sender
        self._most_rows = most_rows
        self._parts: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._number = 0

    def add(self, batch: pa.RecordBatch) -> None:
        sizes = np.cumsum(pc.binary_length(batch.column("body")).to_numpy(zero_copy_only=False))
        at = 0
        while at < batch.num_rows:
            before = int(sizes[at - 1]) if at else 0
            fits = np.searchsorted(sizes, before + _CHUNK_BYTES - self._bytes, side="right")
            stop = min(int(fits), at + self._most_rows - self._rows, batch.num_rows)
            if stop <= at:
                if self._rows:
                    self.flush()
                    continue
                stop = at + 1
            self._parts.append(batch.slice(at, stop - at))
            self._rows += stop - at
            self._bytes += int(sizes[stop - 1]) - before
            at = stop
        if self._rows >= self._most_rows:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        table = pa.Table.from_batches(self._parts)
        self._sender.send(self._path, table, f"{self._prefix}/{self._number}")
        self._number += 1
        self._parts, self._rows, self._bytes = [], 0, 0


class _Sender:
    """Publishes chunks in order, one at a time, while the task gathers the next one.

    Leaving the ``with`` block waits until everything is published, or raises the first error.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._server = server_of(options.connection)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-sender")
        self._sending: Future[None] | None = None

    def __enter__(self) -> _Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._wait()
        finally:
            self._thread.shutdown()

    def send(self, path: str, table: pa.Table, key: str) -> None:
        """Returns once the chunk before is published, or raises its error."""
        self._wait()
        self._sending = self._thread.submit(self._publish, path, table, key)

    def _wait(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    def _publish(self, path: str, table: pa.Table, key: str) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        # Packed, the answer is one line; in JSON it would list every message.
        headers = {"Content-Type": ARROW, "Accept": PACKED}
        if not _has_keys(table):
            headers["Idempotency-Key"] = key
        try:
            self._server.send("POST", path, memoryview(sink.getvalue()), headers)
        except Refused as exc:
            if exc.reason != "batch_too_large" or table.num_rows == 1:
                raise
            # Large attributes. The halves have keys of their own, the same ones every time.
            half = table.num_rows // 2
            self._publish(path, table.slice(0, half), f"{key}.0")
            self._publish(path, table.slice(half), f"{key}.1")


def _has_keys(table: pa.Table) -> bool:
    """Whether each row has a key of its own."""
    return "dedup_key" in table.column_names and not table["dedup_key"].null_count

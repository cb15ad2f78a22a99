"""A stream whose rows are files: each task writes its index range itself, and yields the files.

Messages go from the server to parquet as Arrow, never through the JVM as rows, which took more CPU
time (see docs/decisions/0020). Offsets, retries and the subscription are those of the format.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import IO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.pipeline.place import Place, place_of
from penstock.spark.fetch import Range
from penstock.spark.options import ReadOptions, read_options
from penstock.spark.schema import Shaper, read_schema
from penstock.spark.stream_reader import Offset, PenstockStreamReader
from penstock.spark.versions import as_asked

__all__ = ["FilesSource", "StagedFile", "Staging"]

_OPTION = "landing"
# How much is held in memory before it is written as a row group.
_GROUP_BYTES = 64 * 1024 * 1024
# From this size on, the next file is started. (S3 copies at most 5 GiB at once.)
_FILE_BYTES = 1024 * 1024 * 1024
# Columns with repeated values, for dictionary encoding. Trying it on bodies and ids costs time.
_REPEATED = ("content_type", "topic", "group_key", "event", "subscription", "reason")


class Staging(msgspec.Struct, frozen=True, kw_only=True):
    """Where files go, and which are the index column (`number`) and the time column (`at`).

    `landed` is each queue's next index to land. With `is_once`, the run ends where the queues end
    at its start.
    """

    directory: str
    number: str
    at: str
    landed: dict[str, int]
    is_once: bool

    def option(self) -> dict[str, str]:
        return {_OPTION: msgspec.json.encode(self).decode()}


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is relative to the directory of `Staging`."""

    path: str
    queue: str
    day: str
    rows: int
    bytes: int
    first: int
    last: int


_SCHEMA = StructType(
    [
        StructField(name, StringType() if name in ("path", "queue", "day") else LongType())
        for name in StagedFile.__struct_fields__
    ]
)


class FilesSource(DataSource):
    """The options are those of the format's streams, plus `Staging`."""

    @classmethod
    def name(cls) -> str:
        return "penstock-files"

    def schema(self) -> StructType:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        given = dict(self.options)
        staging = msgspec.json.decode(given.pop(_OPTION), type=Staging)
        reader = FilesReader(read_options(given, "stream"), staging)
        return as_asked(reader, to_the_end=staging.is_once)


class FilesReader(PenstockStreamReader):
    """A failed attempt leaves files that nothing refers to, until the next batch is landed.

    The checkpoint may be lost, or older than the lake: Spark does not sync it. So rows that are
    landed are left out of every batch, until the stream has come to where the lake ends.
    """

    def __init__(self, options: ReadOptions, staging: Staging) -> None:
        super().__init__(options, read_schema(options))
        self._staging = staging
        self._landed = dict(staging.landed)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._landed = {
            queue: index
            for queue, index in self._landed.items()
            if not self._is_past(queue, index, start, end)
        }
        ranges = [
            Range(each.queue, max(each.start, self._landed.get(each.queue, 0)), each.stop)
            for each in super().partitions(start, end)
            if isinstance(each, Range)
        ]
        return [each for each in ranges if each.start < each.stop]

    def _is_past(self, queue: str, landed: int, start: Offset, end: Offset) -> bool:
        """Whether no landed row can be read from here on.

        So it is if the queue was made anew and is shorter than what was landed of another.
        """
        if self._heads.get(queue, landed) < landed:
            return True
        return landed <= start.get(queue, 0) <= end.get(queue, 0)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return
        directory = place_of(self._staging.directory)
        files: dict[str, _File] = {}
        written = []
        for batch in super().read(partition):
            for day, rows in _by_day(batch, self._staging.at):
                if day not in files:
                    files[day] = _File(directory, partition.queue, day, self._staging.number)
                files[day].add(rows)
                if files[day].is_full:
                    written.append(files.pop(day).finish())
        written += [file.finish() for file in files.values()]
        yield pa.RecordBatch.from_pylist(
            [msgspec.structs.asdict(file) for file in written], Shaper(_SCHEMA).schema
        )


def _by_day(batch: pa.RecordBatch, at: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Days are in UTC."""
    days = batch.column(at).cast(pa.date32())
    every = pc.unique(days).to_pylist()
    for day in every:
        yield day.isoformat(), batch if len(every) == 1 else batch.filter(pc.equal(days, day))


class _File:
    """A file of one queue and day, which are in the names of its directories, not in the file."""

    def __init__(self, directory: Place, queue: str, day: str, number: str) -> None:
        self._directory = directory
        self._queue = queue
        self._day = day
        self._number = number
        # A unique name: another attempt at the same range must not write to the same file.
        self._path = f"queue={queue}/day={day}/{uuid.uuid4().hex}.parquet"
        self._parts: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._first: int | None = None
        self._last = 0
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None

    @property
    def is_full(self) -> bool:
        return self._file is not None and self._file.tell() >= _FILE_BYTES

    def add(self, rows: pa.RecordBatch) -> None:
        numbers = rows.column(self._number)
        if self._first is None:
            self._first = numbers[0].as_py()
        self._last = numbers[-1].as_py()
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        self._parts.append(rows.drop_columns(["queue"]))
        if self._bytes >= _GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        table = pa.Table.from_batches(self._parts)
        if self._writer is None:
            self._file = (self._directory / self._path).write()
            repeated = [name for name in _REPEATED if name in table.column_names]
            self._writer = pq.ParquetWriter(
                self._file, table.schema, compression="snappy", use_dictionary=repeated
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._parts, self._bytes = [], 0

    def finish(self) -> StagedFile:
        """Close the file. It is durable on return."""
        if self._parts:
            self._write()
        assert self._file is not None
        assert self._writer is not None
        assert self._first is not None
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        (self._directory / self._path).sync()
        return StagedFile(
            path=self._path,
            queue=self._queue,
            day=self._day,
            rows=self._rows,
            bytes=size,
            first=self._first,
            last=self._last,
        )

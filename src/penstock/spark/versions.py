"""The differences between Spark versions in how a stream is asked for its batches.

From 4.2 on, Spark calls `latestOffset(start, limit)`. Earlier versions call `latestOffset()`, with
neither the start of the batch nor a limit, and do not announce `availableNow`. The start can be
inferred from their other calls, as `Unaided` explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.stream_reader import Offset, PenstockStreamReader

SAYS_START = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or SAYS_START:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How much of what is available a batch takes."""

    class ReadAllAvailable(ReadLimit):
        """Everything."""

    class ReadMaxRows(ReadLimit):
        """At most this many rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:
        """Unused by a Spark that does not have it."""


__all__ = [
    "SAYS_START",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "Unaided",
    "as_asked",
    "start_to_the_end",
]

_ASKED_TOO_EARLY = (
    "Spark asks where the stream ends before it says where it stands, so that what is in between "
    "cannot be known: unset spark.sql.streaming.triggerAvailableNowWrapper.enabled, or use Spark "
    "4.2 or newer"
)


def as_asked(reader: PenstockStreamReader, *, to_the_end: bool = False) -> DataSourceStreamReader:
    """The reader in the form that this version of Spark can use.

    ``to_the_end`` is for `start_to_the_end`: nothing published after the query started is read.
    """
    return reader if SAYS_START else Unaided(reader, to_the_end=to_the_end)


def start_to_the_end(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query that reads what is there and ends, with the floor moved to the end.

    Before 4.2, `availableNow` does not work with a Python source: Spark would run one batch, and
    end without telling the source that it is done.
    """
    if SAYS_START:
        return writer.trigger(availableNow=True).start()
    query = writer.start()
    Thread(target=_stop_at_rest, args=[query], name="penstock-to-the-end", daemon=True).start()
    return query


def _stop_at_rest(query: StreamingQuery) -> None:
    # Whoever awaits the query gets its exception.
    with suppress(PySparkException):
        query.processAllAvailable()
    query.stop()


class Unaided(DataSourceStreamReader):
    """A reader for a Spark that does not pass the start of a batch.

    Invariant: whenever Spark asks for an end offset, `_start` is where that batch begins. Spark
    makes its calls in a fixed order:

    - With a checkpoint, it first plans an empty range at the end of the newest batch in its log. If
      that batch was not committed, it is planned and run again before anything else.
    - Without one, it asks for an end offset at once, and then for the start of the stream:
      `initialOffset`, which the server remembers.
    - It plans a batch before running it, and asks for the next end offset only once that batch is
      committed. A batch that fails ends the query, and this object with it.

    So the next batch begins where the last planned one ends, and that one is committed. That is
    what a newer Spark passes as ``start``, and the floor moves just as safely.
    """

    def __init__(self, reader: PenstockStreamReader, *, to_the_end: bool = False) -> None:
        self._reader = reader
        self._to_the_end = to_the_end
        self._start: Offset | None = None
        self._answer: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._reader.initialOffset()

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802
        if self._answer is None and self._to_the_end:
            self._reader.prepareForTriggerAvailableNow()
        if self._start is None:
            if self._answer is not None:
                raise InvalidArgument(_ASKED_TOO_EARLY)
            start = self._reader.initialOffset()
        else:
            start = self._start
        self._answer = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        return self._answer

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if self._start is None and self._answer not in (None, end):
            raise InvalidArgument(_ASKED_TOO_EARLY)
        self._start = end
        return [] if start == end else self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def stop(self) -> None:
        self._reader.stop()

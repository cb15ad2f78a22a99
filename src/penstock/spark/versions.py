"""How Spark asks a stream for its batches, which depends on its version. Only this module knows.

From 4.2 on Spark asks `latestOffset(start, limit)`. Before that it asks `latestOffset()`, and says
neither where the batch begins nor how much is wanted, nor does it announce a run to the end. What
it says by its other calls is enough, as `Unaided` shows.
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
        """How much of what there is a batch takes."""

    class ReadAllAvailable(ReadLimit):
        """Everything."""

    class ReadMaxRows(ReadLimit):
        """So many rows at most."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:
        """A Spark that has this asks for it; another one does not."""


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
    """What this Spark can ask.

    ``to_the_end`` is for a query by `start_to_the_end`: nothing is read that comes after it began.
    """
    return reader if SAYS_START else Unaided(reader, to_the_end=to_the_end)


def start_to_the_end(writer: DataStreamWriter) -> StreamingQuery:
    """A query that ends by itself, with the floor at the end of what there was.

    Before 4.2 a source of Python's cannot have `availableNow`: Spark would run one batch, and end
    without saying that it is done.
    """
    if SAYS_START:
        return writer.trigger(availableNow=True).start()
    query = writer.start()
    Thread(target=_stop_at_rest, args=[query], name="penstock-to-the-end", daemon=True).start()
    return query


def _stop_at_rest(query: StreamingQuery) -> None:
    # What ends the query is looked at by those who wait for it.
    with suppress(PySparkException):
        query.processAllAvailable()
    query.stop()


class Unaided(DataSourceStreamReader):
    """A reader for a Spark that does not say where a batch begins.

    Invariant: `_start` is where the next batch begins, whenever Spark asks where it ends. Of its
    calls these are in a fixed order:

    - Begun with a checkpoint, Spark plans an empty range first, at the end of the newest batch in
      its log. If that batch was not committed, it is planned and run again, before all else.
    - Begun without, it asks for an end at once, and then where the stream begins: at
      `initialOffset`, which the server remembers.
    - It plans a batch before running it, and asks for the next end only once that is committed. A
      batch that fails ends the query, and this object with it.

    So the next batch begins where the last one that was planned ends, and that one is committed:
    the same that a newer Spark says by ``start``, and the floor moves just as safely.
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

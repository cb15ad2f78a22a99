"""Reading an index range on an executor: Arrow record batches from the server to Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.spark.errors import DataLoss, Refused, Unreachable
from penstock.spark.http import ARROW, Interrupted, server_of
from penstock.spark.options import ReadOptions
from penstock.spark.schema import Shaper

__all__ = ["Range", "fetch"]

_PAUSE_SECONDS = 0.25
# How many missing ranges an error lists.
_NAMED = 10


@dataclass(frozen=True)
class Range(InputPartition):
    """The messages ``start <= index < stop`` of a queue, which one task reads."""

    queue: str
    start: int
    stop: int


def fetch(part: Range, options: ReadOptions, shaper: Shaper) -> Iterator[pa.RecordBatch]:
    """Every row of the range that the server holds, once, in order.

    Indexes are dense, so a missing one is lost: raises `DataLoss`, unless `failOnDataLoss` is off.
    So is what a queue held that was deleted.
    If the connection breaks, reading resumes after the last batch that was yielded.
    """
    gone: list[tuple[int, int]] = []
    at = part.start
    since = time.monotonic()
    while at < part.stop:
        stop = min(part.stop, at + options.fetch_rows)
        try:
            for batch in _whole_indexes(_answer(part.queue, at, stop, options), options):
                numbers = batch.column(_number(options))
                gone += _gaps(numbers, at)
                at = numbers[-1].as_py() + 1
                _check(part, gone, options)
                yield shaper.shape(batch)
                since = time.monotonic()  # what Spark did with it in the meantime does not count
        except Refused as exc:
            if exc.reason != "queue_not_found":
                raise
            stop = part.stop  # it was deleted after the range was planned
        except Interrupted as exc:
            if time.monotonic() - since > options.connection.retry_seconds:
                raise Unreachable(
                    f"{options.connection.url} could not do it for "
                    f"{options.connection.retry_seconds:g} seconds (retrySeconds): {exc}"
                ) from exc
            time.sleep(_PAUSE_SECONDS)
            continue
        if at < stop:
            gone.append((at, stop))
            at = stop
            _check(part, gone, options)


def _answer(queue: str, start: int, stop: int, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    query: dict[str, str | int] = {"start": start, "end": stop}
    if options.is_events:
        path = f"/v1/queues/{queue}/events"
    else:
        path = f"/v1/queues/{queue}/messages"
        if not options.include_body:
            query["include_body"] = "false"
    server = server_of(options.connection)
    with server.open("GET", f"{path}?{urlencode(query)}", None, {"Accept": ARROW}) as response:
        try:
            with pa.ipc.open_stream(response) as stream:
                for batch in stream:
                    if batch.num_rows:
                        yield batch
        except pa.ArrowInvalid as exc:
            raise Interrupted(f"the answer is not whole: {exc}") from exc
        # Arrow takes a truncated body for the end of the stream; this raises if HTTP disagrees.
        response.read()


def _whole_indexes(
    batches: Iterator[pa.RecordBatch], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Keep all events with the same number in one batch.

    Otherwise, resuming after a batch would yield some of them twice.
    """
    if not options.is_events:
        yield from batches
        return
    kept: pa.RecordBatch | None = None
    for batch in batches:
        joined = batch if kept is None else pa.concat_batches([kept, batch])
        numbers = joined.column("events_index")
        last = pc.index(numbers, numbers[-1]).as_py()
        if last:
            yield joined.slice(0, last)
        kept = joined.slice(last)
    if kept is not None:
        yield kept


def _number(options: ReadOptions) -> str:
    return "events_index" if options.is_events else "index"


def _gaps(numbers: pa.Array, at: int) -> list[tuple[int, int]]:
    """The ranges between ``at`` and the last number that are missing."""
    first, last, count = numbers[0].as_py(), numbers[-1].as_py(), len(numbers)
    if first == at and last - first + 1 == count:
        return []
    gaps = [(at, first)] if first > at else []
    steps = pc.subtract(numbers.slice(1), numbers.slice(0, count - 1))
    places = pc.indices_nonzero(pc.greater(steps, 1)).to_pylist()
    return gaps + [(numbers[at].as_py() + 1, numbers[at + 1].as_py()) for at in places]


def _check(part: Range, gone: list[tuple[int, int]], options: ReadOptions) -> None:
    if gone and options.fail_on_data_loss:
        what = "events" if options.is_events else "messages"
        count = sum(stop - start for start, stop in gone)
        named = ", ".join(
            str(start) if stop == start + 1 else f"{start} to {stop - 1}"
            for start, stop in gone[:_NAMED]
        )
        more = f" and {len(gone) - _NAMED} more ranges" if len(gone) > _NAMED else ""
        raise DataLoss(
            f"of queue {part.queue!r} {count} {what} are gone that were not read yet: index "
            f"{named}{more}. They were purged, or retention removed them, or the queue was "
            "deleted. With failOnDataLoss=false the stream goes on with what is left"
        )

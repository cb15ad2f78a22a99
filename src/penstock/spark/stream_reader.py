"""A stream: a subscription that is read by index range, batch by batch.

Invariant: the floor of the subscription never passes what Spark has committed. Spark calls
`latestOffset(start)` only once the batch that ends at ``start`` is in its commit log, so the floor
moves then, and only then. (`commit` comes one batch later, and not at all for the last batch of a
run; `stop` comes after a failure as well.)
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import InvalidArgument
from penstock.spark.errors import DataLoss
from penstock.spark.fetch import Range, fetch
from penstock.spark.options import ReadOptions
from penstock.spark.positions import parse_position, share, split
from penstock.spark.queues import Place, Queues, QueueState
from penstock.spark.schema import Shaper
from penstock.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from penstock.spark.worker import settle_in

__all__ = ["PenstockStreamReader"]

Offset = dict[str, int]

_WORDS = ("floor", "earliest", "latest")
# A stream that finds nothing asks less and less often, up to the longest pause.
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.64


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset maps each queue to the next index to read. `as_asked` adapts this to older Sparks.

    A queue that is in the end offset of a batch but not in its start is new: this batch has none of
    its messages, and records where it starts.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._starting = parse_position("startingOffsets", options.starting or "floor", _WORDS)
        self._target: Offset | None = None
        self._heads: Offset = {}
        self._idle_since: Offset | None = None
        self._pause_seconds = 0.0

    def initialOffset(self) -> Offset:  # noqa: N802
        queues = Queues(self._options)
        states = queues.look()
        queues.check_found(states)
        if isinstance(self._starting, dict):
            for name in self._starting:
                if name not in states:
                    raise InvalidArgument(f"startingOffsets names {name!r}, which is not read")
        return {name: self._begin(queues, state) for name, state in states.items()}

    def _begin(self, queues: Queues, state: QueueState) -> int:
        """Where to start. Only an index or a time can skip what is not settled yet."""
        if isinstance(self._starting, datetime):
            _floor(queues, state, self._starting.isoformat())
            return queues.index_at(state, self._starting)
        if isinstance(self._starting, dict):
            starting = self._starting.get(state.name, "floor")
        else:
            starting = self._starting
        if isinstance(starting, int):
            if starting > state.next and self._options.fail_on_data_loss:
                raise DataLoss(
                    f"startingOffsets is {starting} for queue {state.name!r}, which ends before "
                    f"{state.next}"
                )
            starting = min(starting, state.next)
            _floor(queues, state, starting)
            return starting
        floor = _floor(queues, state, "latest" if starting == "latest" else "earliest")
        return min(state.first, floor) if starting == "earliest" else floor

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        queues = Queues(self._options)
        self._target = {name: queues.head(state, 0) for name, state in queues.look().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        queues = Queues(self._options)
        self._rest(start)
        states = queues.look()
        finished = self._finish(queues, states, start)
        found = {
            name: _floor(queues, state, "earliest")
            for name, state in states.items()
            if name not in start and (self._target is None or name in self._target)
        }
        heads = {
            name: self._head(queues, name, states.get(name), at, is_durable=name in finished)
            for name, at in start.items()
        }
        self._heads = {name: state.next for name, state in states.items()}
        end = start | heads | found
        if isinstance(limit, ReadMaxRows):
            backlogs = {name: end[name] - at for name, at in start.items() if end[name] > at}
            turn = sum(start.values())
            for name, rows in share(backlogs, limit.max_rows, turn).items():
                end[name] = start[name] + rows
        self._idle_since = start if end == start else None
        return end

    def _rest(self, start: Offset) -> None:
        """Pause before asking again if there was nothing new the last time."""
        if self._target is not None or self._idle_since != start:
            self._pause_seconds = 0.0
            return
        self._pause_seconds = min(
            2 * self._pause_seconds or _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS
        )
        time.sleep(self._pause_seconds)

    def _finish(self, queues: Queues, states: dict[str, QueueState], start: Offset) -> set[str]:
        """Move the floors. Returns the queues whose floor has moved.

        That is a durable write, so what the stats counted before it is durable, too.
        """
        finished = set()
        for name, at in start.items():
            state = states.get(name)
            if state is None:
                continue
            if state.floor is None and self._options.fail_on_data_loss:
                raise DataLoss(
                    f"queue {name!r} has no subscription {self._options.subscription!r} any more. "
                    "Either the queue was deleted and made anew, and is another one; or the "
                    f"subscription was deleted: then create it again from index {at} on. With "
                    "failOnDataLoss=false the stream creates it and goes on from there"
                )
            floor = _floor(queues, state, at)
            if floor < at <= state.next:
                queues.finish(name, at)
                finished.add(name)
        return finished

    def _head(
        self, queues: Queues, name: str, state: QueueState | None, at: int, *, is_durable: bool
    ) -> int:
        if state is None:
            if self._options.fail_on_data_loss and self._is_wanted(name):
                raise DataLoss(
                    f"queue {name!r} is gone, and with it whatever it held from index {at} on. "
                    "With failOnDataLoss=false the stream goes on without it"
                )
            return at
        head = queues.head(state, at, is_durable=is_durable)
        if head < at and self._options.fail_on_data_loss and state.next < at:
            raise DataLoss(
                f"queue {name!r} ends before index {head}, and the stream had come to {at}: it was "
                "deleted and made anew, or an older copy is served. With failOnDataLoss=false the "
                "stream begins anew with it"
            )
        if head < at:
            # Either the rest waits for other subscriptions, or the queue was made anew.
            return at if state.next >= at else head
        if self._target is not None:
            return max(at, min(head, self._target.get(name, at)))
        return head

    def _is_wanted(self, name: str) -> bool:
        """Whether it is still to be read. The pattern may have changed with a restart."""
        if self._options.pattern is None:
            return name in self._options.subscribe
        return re.fullmatch(self._options.pattern, name) is not None

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """As of the last `latestOffset`, without a request."""
        return self._heads or None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        spans = {
            # A queue that was deleted and created again is read from its beginning.
            name: (start[name] if start[name] <= stop else 0, stop)
            for name, stop in end.items()
            if name in start
        }
        return split(spans, self._options)

    def stop(self) -> None:
        """Called when Spark's process for this source ends, for whatever reason.

        If Spark closed the connection, the process would fail to report that to Spark and print a
        traceback. Stopping a query is not an error, so the traceback is suppressed.
        """
        if isinstance(sys.exception(), EOFError | ConnectionError):
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - the process ends with it

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())
        settle_in()
        return fetch(partition, self._options, Shaper(self._schema))


def _floor(queues: Queues, state: QueueState, place: Place) -> int:
    return queues.subscribe(state.name, place) if state.floor is None else state.floor

"""A batch read: index ranges that are fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidArgument
from penstock.spark.errors import DataLoss
from penstock.spark.fetch import Range, fetch
from penstock.spark.options import ReadOptions
from penstock.spark.positions import Position, Span, parse_position, split
from penstock.spark.queues import Queues, QueueState
from penstock.spark.schema import Shaper
from penstock.spark.worker import settle_in

__all__ = ["PenstockReader", "PushingReader"]

_WORDS = ("earliest", "latest")


class PenstockReader(DataSourceReader):
    """From `startingOffsets` to `endingOffsets`, or to where the queues end at planning."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._starting = parse_position("startingOffsets", options.starting or "earliest", _WORDS)
        self._ending = parse_position("endingOffsets", options.ending or "latest", _WORDS)
        if self._starting == "latest" or self._ending == "earliest":
            raise InvalidArgument(
                "a batch read from the latest or to the earliest offset is empty: give others"
            )
        _check_order(self._starting, self._ending)

    def partitions(self) -> Sequence[InputPartition]:
        queues = Queues(self._options)
        states = queues.look()
        queues.check_found(states)
        _check_names("startingOffsets", self._starting, states)
        _check_names("endingOffsets", self._ending, states)
        spans = {name: self._span(queues, state) for name, state in states.items()}
        return split(spans, self._options)

    def _span(self, queues: Queues, state: QueueState) -> Span:
        start = _resolve(queues, state, self._starting, state.first)
        head = queues.head(state, start)
        if start > head and self._options.fail_on_data_loss:
            raise DataLoss(
                f"startingOffsets is {start} for queue {state.name!r}, which ends before {head}"
            )
        stop = _resolve(queues, state, self._ending, head)
        if stop > head and self._options.fail_on_data_loss:
            raise DataLoss(
                f"endingOffsets is {stop} for queue {state.name!r}, which ends before {head}"
            )
        return start, min(stop, head)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return iter(())  # Spark's placeholder for no partitions
        settle_in()
        return fetch(partition, self._options, Shaper(self._schema))


class PushingReader(PenstockReader):
    """Reads less where a condition on index, created_at or id allows it.

    The conditions only narrow the ranges; Spark applies them again to the rows. If no row can meet
    them, no range is left.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._filters = [each for each in filters if _column(each) in ("index", "created_at", "id")]
        return filters

    def _span(self, queues: Queues, state: QueueState) -> Span:
        start, stop = super()._span(queues, state)
        for each in self._filters:
            low, high = self._bounds(queues, state, each)
            start, stop = max(start, low), min(stop, high)
        return start, stop

    def _bounds(self, queues: Queues, state: QueueState, each: Filter) -> Span:
        """The indexes that can meet one condition."""
        value = getattr(each, "value", None)
        if _column(each) == "id" and isinstance(each, EqualTo):
            found = queues.index_of(state.name, str(value))
            return (0, 0) if found is None else (found, found + 1)
        if isinstance(value, datetime) and _column(each) == "created_at":
            moment = value.astimezone(UTC)
            at = queues.index_at(state, moment)
            behind = queues.index_after(state, moment)
        elif isinstance(value, int) and _column(each) == "index":
            at, behind = value, value + 1
        else:
            return 0, state.next
        match each:
            case GreaterThan():
                return behind, state.next
            case GreaterThanOrEqual():
                return at, state.next
            case LessThan():
                return 0, at
            case LessThanOrEqual():
                return 0, behind
            case EqualTo():
                return at, behind
        return 0, state.next


def _column(each: Filter) -> str:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _check_order(starting: Position, ending: Position) -> None:
    if isinstance(starting, datetime) and isinstance(ending, datetime) and starting > ending:
        raise InvalidArgument("startingOffsets and endingOffsets: the end is before the start")
    if isinstance(starting, dict) and isinstance(ending, dict):
        for name, start in starting.items():
            stop = ending.get(name)
            if isinstance(start, int) and isinstance(stop, int) and start > stop:
                raise InvalidArgument(
                    f"startingOffsets and endingOffsets: for {name!r} the end, {stop}, is before "
                    f"the start, {start}"
                )


def _check_names(option: str, position: Position, states: dict[str, QueueState]) -> None:
    if isinstance(position, dict):
        for name in position:
            if name not in states:
                raise InvalidArgument(f"{option} names {name!r}, which is not read")


def _resolve(queues: Queues, state: QueueState, position: Position, default: int) -> int:
    if isinstance(position, datetime):
        return queues.index_at(state, position)
    wanted = position.get(state.name, "") if isinstance(position, dict) else position
    if wanted == "earliest":
        return state.first
    if wanted == "latest":
        return queues.head(state, state.first)
    return wanted if isinstance(wanted, int) else default

"""The files of gold's states: one for each state and day, and one with the events that wait."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.pipeline.figures import DELIVERY, EVENT_COLUMNS, STATES, TABLES, State
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing, Move
from penstock.pipeline.place import Place

__all__ = ["StateFiles", "day_of"]

_PLACE = "_penstock/state"
_WAITING = "waiting"
_SUFFIX = ".parquet"


def day_of(path: str) -> str:
    """The day in the path of a file; empty if there is none."""
    return path.partition("/day=")[2].partition("/")[0]


class StateFiles:
    """Files are replaced as a whole, all that change together by one entry of gold's log.

    `add` and `wait` stage what the next entry replaces, and `land` writes it.
    """

    def __init__(self, spark: SparkSession, lake: Lake, landing: Landing) -> None:
        self._spark = spark
        self._lake = lake
        self._landing = landing
        self._place = lake.table(_PLACE)
        self._moves: list[Move] = []
        self._removed: list[Place] = []

    def read(self, state: State, days: Iterable[str]) -> DataFrame:
        return self._read(self._of_days(state, days), state.columns)

    def waiting(self) -> DataFrame:
        return self._read(self._files(_WAITING), EVENT_COLUMNS)

    def days(self, states: Iterable[State]) -> set[str]:
        """All days that any of the states has."""
        return {day_of(file.path) for state in states for file in self._files(state.name)}

    def changed_by(self, entry: Entry) -> set[str]:
        """The names of the states that the entry has changed; those that wait count as delivery."""
        paths = [*(move.path for move in entry.files), *entry.removed]
        below = [path.removeprefix(f"{_PLACE}/") for path in paths]
        names = {path.partition("/")[0] for path in below}
        return names | {DELIVERY.name} if _WAITING in names else names

    def days_waiting(self) -> set[str]:
        return _days_in(self._files(_WAITING), "at")

    def _files(self, name: str) -> list[Place]:
        return (self._place / name).files(_SUFFIX)

    def _of_days(self, state: State, days: Iterable[str]) -> list[Place]:
        return [file for day in sorted(days) for file in self._files(f"{state.name}/day={day}")]

    def _read(self, files: list[Place], columns: dict[str, str]) -> DataFrame:
        if not files:
            nothing = [F.lit(None).cast(kind).alias(name) for name, kind in columns.items()]
            return self._spark.range(0).select(*nothing)
        schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        return self._spark.read.schema(schema).parquet(*map(str, files))

    def add(self, state: State, rows: DataFrame, days: Iterable[str]) -> None:
        """Stage these days anew, with the rows, none of which is of another day."""
        old = self._of_days(state, days)
        merged = state.merged(self._read(old, state.columns).unionByName(rows))
        dated = merged.withColumn("day", F.date_format("minute", "yyyy-MM-dd"))
        self._stage(state.name, dated, "day")
        self._removed += old

    def wait(self, rows: DataFrame) -> None:
        """Stage the events that wait from now on."""
        self._stage(_WAITING, rows)
        self._removed += self._files(_WAITING)

    def _stage(self, name: str, rows: DataFrame, *partitions: str) -> None:
        target = str(self._landing.staging / name)
        writer = rows.repartition(1).write.mode("overwrite").partitionBy(*partitions)
        # One file for each day, whatever the session says.
        writer.option("maxRecordsPerFile", 0).parquet(target)
        for move in self._landing.staged(name):
            # No other entry has a file of this name: those that it removes are others.
            directory = f"{_PLACE}/{move.path.rpartition('/')[0]}"
            path = f"{directory}/{self._landing.next_number:012d}{_SUFFIX}"
            self._moves.append(msgspec.structs.replace(move, path=path))

    def land(self, progress: dict[str, int]) -> Entry:
        removed = [file.below(self._lake.root) for file in self._removed]
        entry = self._landing.land(progress, self._moves, removed)
        self._moves, self._removed = [], []
        return entry

    def are_early(self) -> bool:
        """Whether the states, and the tables, are single files, as early lakes have them."""
        return any(self._early(state) for state in STATES)

    def adopt_early(self) -> Entry:
        for state in STATES:
            if early := self._early(state):
                self.add(state, self._read(early, state.columns), _days_in(early, "minute"))
                self._removed += early
        tables = [self._lake.table(f"gold/{name}{_SUFFIX}") for name in TABLES]
        self._removed += [file for file in tables if file.exists()]
        return self.land({})

    def _early(self, state: State) -> list[Place]:
        return [each for each in self._place.children() if each.name.startswith(f"{state.name}-")]


def _days_in(files: Iterable[Place], column: str) -> set[str]:
    days: set[str] = set()
    for each in files:
        with each.open() as file:
            times = pq.ParquetFile(file).read([column])[column]
        days |= {day.isoformat() for day in pc.unique(times.cast("date32")).to_pylist()}
    return days

"""Landing: making the files that a job has staged visible to every reader, exactly once.

The steps, in this order; a crash may follow any of them:

1. Spark writes the files of a batch into ``staging/<job>``, where no reader looks. After a crash
   they are deleted, and the batch is run again.
2. The files are synced, and an **entry** is created in the job's log, atomically: where each file
   goes, and how far the job has got. This is the commit; after a crash, the remaining steps are
   completed before anything else is done (`recover`).
3. Each file is moved to its place. Before that a reader sees none of its rows, afterwards all.
   Moving is idempotent: the file has the same rows and goes to the same place.
4. Spark commits the batch, and the floor of the subscription moves.

Invariant: a row is in at most one file outside of staging, and in exactly one once its entry is
recovered. If Spark runs a batch again after step 2, the progress in the entry shows that, and none
of it is staged again. Tasks write only to staging, so a task that outlives its driver changes no
table. Staged files have unique names, so none is mistaken for one of an earlier entry. Of two
drivers, one creates the next entry, and the other fails before it has moved anything. Neither
removes files that the other may still name in an entry.

The log is short. An entry includes everything before it: how far the job has got, and how many rows
its tables have. So only the newest entry is needed, for recovery, and those that a following job
has yet to read. The others are removed (`trim`), in any order and at any time: a removal that is
missed or repeated does no harm.

Invariant: the newest entry is never removed, so once there is one there always is, and its number
only grows. Hence nobody can create an entry under a number that was removed and take it for the
newest: there is one with a higher number, and whoever has created an entry looks for that before
moving anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

import msgspec
import pyarrow.parquet as pq

from penstock.pipeline.errors import LakeDamaged, LakeInUse
from penstock.pipeline.lake import Lake
from penstock.pipeline.place import Place

__all__ = ["Entry", "Landing", "Move", "Show"]

_SUFFIX = ".parquet"
_ENTRY = ".json"
# Concurrent requests to an object store, which mostly wait.
_AT_ONCE = 16


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A file to move: `staged` is relative to the job's staging, `path` to the lake."""

    staged: str
    path: str
    rows: int
    bytes: int
    first: int | None = None
    last: int | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One landed batch. `progress` is defined by the job, and complete in every entry.

    So are `totals`, the rows of each partitioned table; entries of early lakes have none. `removed`
    has the files that this entry replaces, relative to the lake; `run` is the run that created it.
    """

    number: int
    progress: dict[str, int]
    files: list[Move]
    totals: dict[str, int] | None = None
    removed: list[str] = []
    run: str = ""


Show = Callable[[Entry, Place], None]


class Landing:
    """The log of one job, through which files get into its tables."""

    def __init__(self, lake: Lake, job: str, show: Show | None = None) -> None:
        """``show`` is step 3: it makes the files of an entry visible. By default they are moved.

        Calling it again for the same entry must change nothing.
        """
        self._lake = lake
        self._job = job
        self._show = show or self._move_all
        self._log = lake.log(job)
        self._base = lake.staging(job)
        self._newest: Entry | None = None
        self._run = ""

    @property
    def staging(self) -> Place:
        """Where this object, and no other, stages the files of the next entry."""
        if not self._run:
            self._run = f"{self._known().number:012d}-{uuid.uuid4().hex}"
        return self._base / self._run

    @property
    def next_number(self) -> int:
        return self._known().number + 1

    def entries(self, above: int = 0) -> list[Entry]:
        """The entries with a higher number, in order. Raises `LakeDamaged` if one was removed."""
        # A listing is not a snapshot: it may lack an entry that is older than one it has.
        newest = max(self._numbers(), default=0)
        with self._pool() as pool:
            return list(pool.map(self._needed, range(above + 1, newest + 1)))

    def finished(self, above: int = 0) -> list[Entry]:
        """Like `entries`, but only those whose rows are all in their tables.

        The newest one may be under way in another thread, or unfinished since a crash.
        """
        if self._job not in self._lake.finished:
            self.recover()
        newest = self._lake.finished[self._job]
        return [entry for entry in self.entries(above) if entry.number <= newest]

    def last(self) -> Entry:
        """The newest entry; number 0 if there is none yet."""
        missed = 0
        while numbers := self._numbers():
            try:
                return self._load(numbers[-1])
            except FileNotFoundError:
                # Removed since it was listed: there is a newer one.
                if numbers[-1] <= missed:
                    raise
                missed = numbers[-1]
        return Entry(number=0, progress={}, files=[], totals={})

    def totals(self) -> dict[str, int]:
        """How many rows the job has landed in each partitioned table."""
        return self._totals(self.last())

    def _totals(self, newest: Entry) -> dict[str, int]:
        if newest.totals is not None:
            return newest.totals
        with self._pool() as pool:
            every = pool.map(self._load, self._numbers())
            return _counted(move for entry in every for move in entry.files)

    def trim(self, above: int | None = None) -> int:
        """Remove entries that nobody needs, except those ``above`` a number. Returns how many."""
        newest = self.last()
        if newest.totals is None:
            return 0
        if newest.number:
            # An entry that was created right before a crash may not be durable yet.
            self._log.sync()
        limit = newest.number if above is None else min(above + 1, newest.number)
        gone = [number for number in self._numbers() if number < limit]
        with self._pool() as pool:
            list(pool.map(lambda number: self._file(number).remove(), gone))
        return len(gone)

    def _known(self) -> Entry:
        """The newest entry, cached: only this object writes to the log in the meantime."""
        if self._newest is None:
            self._newest = self.last()
        return self._newest

    def recover(self) -> Entry:
        """Complete what a crash has interrupted. Returns the newest entry."""
        entry = self._newest = self.last()
        if entry.number:
            # An entry that was created right before a crash may not be durable yet.
            self._log.sync()
        self._finish(entry)
        return entry

    def land(
        self, progress: dict[str, int], moves: list[Move], removed: Iterable[str] = ()
    ) -> Entry:
        """Do steps 2 and 3. ``progress`` has only what changes."""
        last = self._known()
        entry = Entry(
            number=self.next_number,
            progress=last.progress | progress,
            files=moves,
            totals=_counted(moves, self._totals(last)),
            removed=list(removed),
            run=self._run,
        )
        for move in moves:
            (self._base / move.staged).sync()
        is_new = self._file(entry.number).create(msgspec.json.encode(entry))
        if not is_new or max(self._numbers(), default=0) > entry.number:
            raise LakeInUse(
                f"another pipeline has landed files in {self._lake.root} since this one began: "
                "run one at a time"
            )
        self._newest = entry
        self._finish(entry)
        return entry

    def _finish(self, entry: Entry) -> None:
        self._show(entry, self._base)
        self._lake.finished[self._job] = entry.number
        for path in entry.removed:
            self._lake.table(path).remove()
        for staging in self._base.children():
            if self._is_over(staging.name, entry):
                staging.remove()

    def _is_over(self, run: str, newest: Entry) -> bool:
        """Whether what the run has staged can no longer be landed.

        Only the run that created the newest entry, or one that started later, can create another.
        """
        began_at = run.partition("-")[0]
        if run == newest.run:
            return run == self._run
        return not began_at.isdigit() or int(began_at) < newest.number

    def _move_all(self, entry: Entry, _base: Place) -> None:
        with self._lake.moving, self._pool() as pool:
            for directory in set(pool.map(self._move, entry.files)):
                self._lake.table(directory).sync()

    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1 if self._base.is_local else _AT_ONCE)

    def _move(self, move: Move) -> str:
        """Move a file. Returns its directory, as a path in the lake."""
        source, target = self._base / move.staged, self._lake.table(move.path)
        if source.exists():
            source.move_to(target)
        elif not target.exists():
            raise LakeDamaged(
                f"{target} was landed and is missing: bring it back, or reset the pipeline"
            )
        return str(PurePosixPath(move.path).parent)

    def staged(self, table: str, index: str | None = None) -> list[Move]:
        """The moves for what Spark has written into ``staging/<table>``, partitioned or not.

        With a column ``index``, files are named after the range of it that they hold.
        """
        base = self.staging / table
        moves = []
        for file in base.files(_SUFFIX):
            inside = PurePosixPath(file.below(base))
            with file.open() as opened:
                footer = pq.read_metadata(opened)
            first, last = _range(footer, index) if index else (None, None)
            name = inside.name if first is None else f"{first:020d}-{last:020d}{_SUFFIX}"
            moves.append(
                Move(
                    staged=file.below(self._base),
                    path=str(PurePosixPath(table) / inside.parent / name),
                    rows=footer.num_rows,
                    bytes=file.size,
                    first=first,
                    last=last,
                )
            )
        return [move for move in moves if move.rows]

    def _numbers(self) -> list[int]:
        names = [file.name.removesuffix(_ENTRY) for file in self._log.files(_ENTRY)]
        return sorted(int(name) for name in names if name.isdigit())

    def _file(self, number: int) -> Place:
        return self._log / f"{number:012d}{_ENTRY}"

    def _load(self, number: int) -> Entry:
        return msgspec.json.decode(self._file(number).read(), type=Entry)

    def _needed(self, number: int) -> Entry:
        try:
            return self._load(number)
        except FileNotFoundError as exc:
            raise LakeDamaged(
                f"{self._file(number)} is missing, and not everything was made of it yet: stop any "
                "other pipeline on this lake, bring the file back, or reset the pipeline"
            ) from exc


def _counted(moves: Iterable[Move], before: Mapping[str, int] = {}) -> dict[str, int]:
    totals = dict(before)
    for move in moves:
        table, is_table, _ = move.path.partition("/queue=")
        if is_table:
            totals[table] = totals.get(table, 0) + move.rows
    return totals


def _range(footer: pq.FileMetaData, column: str) -> tuple[int, int]:
    place = footer.schema.names.index(column)
    groups = [footer.row_group(i).column(place).statistics for i in range(footer.num_row_groups)]
    return min(group.min for group in groups), max(group.max for group in groups)

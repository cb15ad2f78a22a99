"""Landing: from files that a job has staged to files that every reader sees, once.

The order of steps, each of which a crash may follow:

1. Spark writes the files of a batch into ``staging/<job>``. No reader looks there. After a crash
   they are thrown away, and the batch is run again.
2. The files are synced, and an **entry** is created in the job's log, in one step: where each file
   goes, and how far the job has come. From here on the batch is landed; after a crash the rest is
   made up for before anything else is done (`recover`).
3. Each file is moved to its place. Before it a reader sees none of its rows, after it all of them.
   To move one again changes nothing: it has the same rows and goes to the same place.
4. Spark notes the batch as done, and the floor of the subscription moves.

Invariant: a row is in at most one file outside of staging, and in exactly one once its entry is
recovered. A batch that Spark runs again after step 2 is known by the progress in the entry, and
nothing of it is staged again. Tasks write to staging only, and never to a file of another's: one
that outlives its driver changes no table. Of two drivers one creates the next entry, and the other
ends before it has moved anything. Nobody removes what the other may yet name in an entry.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
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
# Of requests to an object store, each of which mostly waits.
_AT_ONCE = 16


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A file on its way: `staged` and `path` are relative to the job's staging and to the lake."""

    staged: str
    path: str
    rows: int
    bytes: int
    first: int | None = None
    last: int | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One landed batch. `progress` is the job's own and complete: the newest entry has all of it.

    `removed` are files that this entry replaces, relative to the lake; `run` is whose entry it is.
    """

    number: int
    progress: dict[str, int]
    files: list[Move]
    removed: list[str] = []
    run: str = ""


Show = Callable[[Entry, Place], None]


class Landing:
    """The log of one job, and the way into its tables."""

    def __init__(self, lake: Lake, job: str, show: Show | None = None) -> None:
        """``show`` is step 3: the files of an entry, staged below a place, become visible.

        To call it again for the same entry must change nothing. Without it they are moved.
        """
        self._lake = lake
        self._show = show or self._move_all
        self._log = lake.log(job)
        self._base = lake.staging(job)
        self._newest: Entry | None = None
        self._run = ""

    @property
    def staging(self) -> Place:
        """Where the files of the next entry are staged, by this object alone."""
        if not self._run:
            self._run = f"{self._known().number:012d}-{uuid.uuid4().hex}"
        return self._base / self._run

    def entries(self, above: int = 0) -> list[Entry]:
        """Those with a higher number, in order."""
        with self._pool() as pool:
            return list(pool.map(self._load, (n for n in self._numbers() if n > above)))

    def last(self) -> Entry:
        """The newest entry; number 0 when there is none yet."""
        numbers = self._numbers()
        return self._load(numbers[-1]) if numbers else Entry(number=0, progress={}, files=[])

    def _known(self) -> Entry:
        """The newest entry, without looking: only this object writes to the log meanwhile."""
        if self._newest is None:
            self._newest = self.last()
        return self._newest

    def recover(self) -> Entry:
        """Make up for what a crash has interrupted; the newest entry."""
        entry = self._newest = self.last()
        self._finish(entry)
        return entry

    def land(
        self, progress: dict[str, int], moves: list[Move], removed: Iterable[str] = ()
    ) -> Entry:
        """Steps 2 and 3. ``progress`` is what changes of it."""
        last = self._known()
        entry = Entry(
            number=last.number + 1,
            progress=last.progress | progress,
            files=moves,
            removed=list(removed),
            run=self._run,
        )
        for move in moves:
            (self._base / move.staged).sync()
        if not self._file(entry.number).create(msgspec.json.encode(entry)):
            raise LakeInUse(
                f"another pipeline has landed files in {self._lake.root} since this one began: "
                "run one at a time"
            )
        self._newest = entry
        self._finish(entry)
        return entry

    def _finish(self, entry: Entry) -> None:
        self._show(entry, self._base)
        for path in entry.removed:
            self._lake.table(path).remove()
        for staging in self._base.children():
            if self._is_over(staging.name, entry):
                staging.remove()

    def _is_over(self, run: str, newest: Entry) -> bool:
        """Whether nothing more can come of what it has staged.

        Only the run that created the newest entry, or one that began after it, can create another.
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
        """The directory that it went to, as a path in the lake."""
        source, target = self._base / move.staged, self._lake.table(move.path)
        if source.exists():
            source.move_to(target)
        elif not target.exists():
            raise LakeDamaged(
                f"{target} was landed and is missing: bring it back, or reset the pipeline"
            )
        return str(PurePosixPath(move.path).parent)

    def staged(self, table: str, index: str | None = None) -> list[Move]:
        """Moves for what Spark has written into ``staging/<table>``, partitioned or not.

        With ``index``, a column, files are called after the range of it that they hold.
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


def _range(footer: pq.FileMetaData, column: str) -> tuple[int, int]:
    place = footer.schema.names.index(column)
    groups = [footer.row_group(i).column(place).statistics for i in range(footer.num_row_groups)]
    return min(group.min for group in groups), max(group.max for group in groups)

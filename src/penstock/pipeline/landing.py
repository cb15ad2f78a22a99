"""Landing: from files that a job has staged to files that every reader sees, once.

The order of steps, each of which a crash may follow:

1. Spark writes the files of a batch into ``staging/<job>``. No reader looks there. After a crash
   they are thrown away, and the batch is run again.
2. The files are synced, and an **entry** is written to the job's log, in one atomic rename: where
   each file goes, and how far the job has come. From here on the batch is landed; after a crash
   the rest is made up for before anything else is done (`recover`).
3. Each file is moved to its place. Before it a reader sees none of its rows, after it all of them.
4. Spark notes the batch as done, and the floor of the subscription moves.

Invariant: a row is in at most one file outside of staging, and in exactly one once its entry is
recovered. A batch that Spark runs again after step 2 is known by the progress in the entry, and
nothing of it is staged again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from penstock.pipeline.errors import LakeDamaged
from penstock.pipeline.lake import Lake, replace_file, sync_file

__all__ = ["Entry", "Landing", "Move"]

_SUFFIX = ".parquet"


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

    `removed` are files that this entry replaces, relative to the lake.
    """

    number: int
    progress: dict[str, int]
    files: list[Move]
    removed: list[str] = []


class Landing:
    """The log of one job, and the way into its tables."""

    def __init__(self, lake: Lake, job: str) -> None:
        self._lake = lake
        self._log = lake.log(job)
        self._base = lake.staging(job)
        self._newest: Entry | None = None

    @property
    def staging(self) -> Path:
        """Where the files of the next entry are staged; no other entry's are."""
        return self._base / f"{self._known().number + 1:012d}"

    def entries(self, above: int = 0) -> list[Entry]:
        """Those with a higher number, in order."""
        return [self._load(number) for number in self._numbers() if number > above]

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
        )
        for move in moves:
            sync_file(self._base / move.staged)
        replace_file(self._log / f"{entry.number:012d}.json", msgspec.json.encode(entry))
        self._newest = entry
        self._finish(entry)
        return entry

    def _finish(self, entry: Entry) -> None:
        with self._lake.moving:
            self._move(entry)
        if self._base.exists():
            shutil.rmtree(self._base)

    def _move(self, entry: Entry) -> None:
        directories: set[Path] = set()
        for move in entry.files:
            source, target = self._base / move.staged, self._lake.table(move.path)
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
                directories.add(target.parent)
            elif not target.exists():
                raise LakeDamaged(
                    f"{target} was landed and is missing: bring it back, or reset the pipeline"
                )
        for path in entry.removed:
            self._lake.table(path).unlink(missing_ok=True)
        for directory in directories:
            sync_file(directory)

    def staged(self, table: str, index: str | None = None) -> list[Move]:
        """Moves for what Spark has written into ``staging/<table>``, partitioned or not.

        With ``index``, a column, files are called after the range of it that they hold.
        """
        base = self.staging / table
        moves = []
        for file in sorted(base.rglob(f"*{_SUFFIX}")):
            inside = file.relative_to(base)
            footer = pq.read_metadata(file)
            first, last = _range(footer, index) if index else (None, None)
            name = inside.name if first is None else f"{first:020d}-{last:020d}{_SUFFIX}"
            moves.append(
                Move(
                    staged=str(file.relative_to(self._base)),
                    path=str(Path(table) / inside.parent / name),
                    rows=footer.num_rows,
                    bytes=file.stat().st_size,
                    first=first,
                    last=last,
                )
            )
        return [move for move in moves if move.rows]

    def _numbers(self) -> list[int]:
        if not self._log.exists():
            return []
        return sorted(int(file.stem) for file in self._log.glob("[0-9]*.json"))

    def _load(self, number: int) -> Entry:
        return msgspec.json.decode((self._log / f"{number:012d}.json").read_bytes(), type=Entry)


def _range(footer: pq.FileMetaData, column: str) -> tuple[int, int]:
    place = footer.schema.names.index(column)
    groups = [footer.row_group(i).column(place).statistics for i in range(footer.num_row_groups)]
    return min(group.min for group in groups), max(group.max for group in groups)

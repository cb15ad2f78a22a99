"""Compaction on a disk: many small files of a queue and day become one, atomically.

The new directory is made beside the table, and then the two are exchanged atomically (Linux's
`renameat2`). A reader that lists the directory sees the old files or the new one. The old directory
is kept until the next compaction, for readers that still use it. An object store has no such
operation: see `days`.

Files are merged only if they have the same columns: those of a typed table differ once its schema
was changed. The bodies of silver are stored differently in each file, but are one column to Spark.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake import Lake
from penstock.pipeline.place import Place, place_of, sync_file

__all__ = ["Compacted", "Compacting", "Merge", "Show", "columns_of", "compact_table", "merge"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_BATCH_ROWS = 65_536
_NOTE = ".place"
# Larger files stay as they are. Otherwise, the rows of a day would be written again and again.
_LARGE_BYTES = 256 * 1024 * 1024
# Where Spark notes the columns of a file that it writes.
_COLUMNS = b"org.apache.spark.sql.parquet.row.metadata"

Merge = Callable[[list[Path], Path], None]
"""Writes the rows of some files, which are in index order, into one. It is durable on return."""


class Compacted(NamedTuple):
    """The number of files before and after."""

    before: int
    after: int


class Compacting(NamedTuple):
    """What is done now, to be displayed: the directory in which files are merged, if any.

    `done` is what was done in this table before.
    """

    table: str
    directory: str
    done: Compacted


Show = Callable[[Compacting], None]


def merge(
    files: Sequence[Place], target: Place, number: str = "", rows: range | None = None
) -> None:
    """Write one file with all their rows, in this order. It is durable on return.

    With ``rows``, only those with an index in that range; ``number`` is the column of the index.
    """
    with files[0].open() as opened:
        schema = pq.read_schema(opened)
    with target.write() as file, pq.ParquetWriter(file, schema, compression="snappy") as writer:
        for each in files:
            with each.open() as opened:
                for batch in pq.ParquetFile(opened).iter_batches(_BATCH_ROWS):
                    # The columns are the same whoever wrote them; only metadata may differ.
                    table = pa.Table.from_batches([batch]).cast(schema)
                    if rows is not None:
                        index = pc.field(number)
                        table = table.filter((index >= rows.start) & (index < rows.stop))
                    if table.num_rows:
                        writer.write_table(table)
    target.sync()


def _merge_files(files: list[Path], target: Path) -> None:
    merge([place_of(file) for file in files], place_of(target))


def compact_table(
    lake: Lake,
    table: str,
    *,
    protected: Callable[[], Iterable[str]] = tuple,
    at_least: int = 2,
    merge: Merge = _merge_files,
    show: Show = lambda _: None,
) -> Compacted:
    """Compact every directory of the table with ``at_least`` small files that are not protected.

    Protected files, relative to the lake, will still be looked up by their names. They are asked
    for once the table is listed, and files that are landed after that are left alone. So an entry
    that is created meanwhile loses none of its files.
    """
    root = Path(lake.root)
    away = Path(lake.staging(f"compact-{table}"))
    _clear(away)
    before = after = 0
    show(Compacting(table, "", Compacted(before, after)))
    base = Path(lake.table(table))
    listed = [(each, sorted(each.glob("*.parquet"))) for each in sorted(base.glob("queue=*/day=*"))]
    kept = set(protected())
    for number, (directory, files) in enumerate(listed):
        small = [
            file
            for file in files
            if str(file.relative_to(root)) not in kept and file.stat().st_size < _LARGE_BYTES
        ]
        groups = _alike(small) if len(small) >= at_least else []
        if not groups:
            continue
        show(Compacting(table, str(directory.relative_to(base)), Compacted(before, after)))
        fresh = away / str(number)
        fresh.mkdir(parents=True)
        for group in groups:
            merge(group, fresh / _name(group))
        merged = {file for group in groups for file in group}
        with lake.moving:
            # Take along the others, and what has landed in the meantime.
            for file in directory.glob("*.parquet"):
                if file not in merged:
                    os.link(file, fresh / file.name)
            sync_file(fresh)
            if not _exchange(fresh, directory):
                _replace(fresh, directory)
        sync_file(directory.parent)
        before += len(merged)
        after += len(groups)
    done = Compacted(before, after)
    show(Compacting(table, "", done))
    return done


def _alike(files: list[Path]) -> list[list[Path]]:
    """Neighbours that have the same columns, where there is more than one."""
    groups = [list(group) for _, group in groupby(files, lambda file: columns_of(place_of(file)))]
    return [group for group in groups if len(group) > 1]


def columns_of(file: Place) -> bytes | None:
    """The names and types of the columns, if Spark wrote the file."""
    with file.open() as opened:
        return (pq.read_metadata(opened).metadata or {}).get(_COLUMNS)


def _name(files: list[Path]) -> str:
    """The name of a file with all their rows: the range of their indexes."""
    first, last = files[0].stem.partition("-")[0], max(file.stem.split("-")[1] for file in files)
    return f"{first}-{last}.parquet"


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories atomically; False if the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _replace(fresh: Path, directory: Path) -> None:
    """Replace in two steps, between which the directory is missing. A note is left for recovery."""
    note = fresh.with_name(f"{fresh.name}{_NOTE}")
    place_of(note).replace(bytes(directory))
    directory.rename(fresh.with_name(f"{fresh.name}.old"))
    fresh.rename(directory)
    note.unlink()


def _clear(away: Path) -> None:
    """Finish a replacement that was interrupted, then delete what is left."""
    if not away.exists():
        return
    for note in away.glob(f"*{_NOTE}"):
        directory = Path(os.fsdecode(note.read_bytes()))
        if not directory.exists():
            note.with_suffix("").rename(directory)
    shutil.rmtree(away)

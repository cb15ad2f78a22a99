"""Compaction on a disk: many small files of a queue and day become one, atomically.

The new directory is made beside the table, and then the two are exchanged atomically (Linux's
`renameat2`). A reader that lists the directory sees the old files or the new one. The old directory
is kept until the next compaction, for readers that still use it. An object store has no such
operation: see `days`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.lake import Lake
from penstock.pipeline.place import Place, place_of, sync_file

__all__ = ["Compacted", "compact_table", "merge"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_BATCH_ROWS = 65_536
_NOTE = ".place"


class Compacted(NamedTuple):
    """The number of files before and after."""

    before: int
    after: int


def compact_table(
    lake: Lake, table: str, *, protected: Iterable[str] = (), at_least: int = 2
) -> Compacted:
    """Compact every directory of the table with ``at_least`` files that are not ``protected``.

    Protected files, relative to the lake, will still be looked up by their names.
    """
    root = Path(lake.root)
    away = Path(lake.staging(f"compact-{table}"))
    _clear(away)
    kept = set(protected)
    before = after = 0
    base = Path(lake.table(table))
    for number, directory in enumerate(sorted(base.glob("queue=*/day=*"))):
        files = sorted(directory.glob("*.parquet"))
        small = [file for file in files if str(file.relative_to(root)) not in kept]
        if len(small) < at_least:
            continue
        fresh = away / str(number)
        fresh.mkdir(parents=True)
        _merge_into(fresh, small)
        with lake.moving:
            # Take along what has landed in the meantime.
            others = [file for file in directory.glob("*.parquet") if file not in small]
            for file in others:
                os.link(file, fresh / file.name)
            sync_file(fresh)
            if not _exchange(fresh, directory):
                _replace(fresh, directory)
        sync_file(directory.parent)
        before += len(small)
        after += 1
    return Compacted(before, after)


def _merge_into(directory: Path, files: list[Path]) -> None:
    """Files sort by name in index order."""
    first, last = files[0].stem.partition("-")[0], max(file.stem.split("-")[1] for file in files)
    merge([place_of(file) for file in files], place_of(directory / f"{first}-{last}.parquet"))


def merge(files: Sequence[Place], target: Place) -> None:
    """Write one file with all their rows, in this order. It is durable on return."""
    with files[0].open() as opened:
        schema = pq.read_schema(opened)
    with target.write() as file, pq.ParquetWriter(file, schema, compression="snappy") as writer:
        for each in files:
            with each.open() as opened:
                for batch in pq.ParquetFile(opened).iter_batches(_BATCH_ROWS):
                    # The columns are the same whoever wrote them; only metadata may differ.
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
    target.sync()


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

"""Past days, copied into large files: compaction for object stores.

An object store cannot move a row from one file to another atomically: a reader could see it twice,
or not at all, or a file could change while it is read. So the table stays as it is, and the large
files are a table of their own, ``compacted/<table>``, landed like any other.

Invariant: for each queue, ``compacted/<table>`` has every row below some index, once, and no other.
It grows by one file at a time. Days only limit how far to go, so nothing depends on a clock.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

from penstock.pipeline.compaction import Compacted, merge
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.place import Place

__all__ = ["compact_days", "days_job", "days_table"]

# An object store copies at most 5 GiB at once, and no file of bronze is much larger than this.
_FILE_BYTES = 1024 * 1024 * 1024


def days_table(table: str) -> str:
    """The table's path in the lake."""
    return f"compacted/{table}"


def days_job(table: str) -> str:
    return f"compacted-{table}"


class _File(NamedTuple):
    queue: str
    first: int
    last: int
    day: str
    file: Place


def compact_days(lake: Lake, table: str, number: str) -> Compacted:
    """Compact every day of a queue but its newest, without the rows of the newest log entry.

    ``number`` is the index column. A pipeline may run at the same time. Raises `LakeInUse` if
    another compaction runs.
    """
    landing = Landing(lake, days_job(table))
    done = landing.recover().progress
    limits = _limits(Landing(lake, table))
    found = sorted(_files(lake.table(table)), key=lambda each: each[:2])
    before = after = 0
    for queue, files in groupby(found, lambda each: each.queue):
        below = [each for each in files if done.get(queue, 0) <= each.first < limits.get(queue, 0)]
        for some in _chunks(_over(below)):
            _stage(some, landing.staging / days_table(table))
            landing.land({queue: some[-1].last + 1}, landing.staged(days_table(table), number))
            before += len(some)
            after += 1
    landing.trim()
    return Compacted(before=before, after=after)


def _limits(landing: Landing) -> dict[str, int]:
    """For each queue, an index below which every row is in the table by now.

    All entries but the newest are complete, so a listing that starts now has all their files.
    """
    newest = landing.last()
    limits = dict(newest.progress)
    for move in newest.files:
        queue = move.path.split("/")[1].removeprefix("queue=")
        assert move.first is not None
        limits[queue] = min(limits[queue], move.first)
    return limits


def _files(base: Place) -> Iterator[_File]:
    for file in base.files(".parquet"):
        queue, day, _ = PurePosixPath(file.below(base)).parts
        first, last = file.name.removesuffix(".parquet").split("-")
        yield _File(
            queue.removeprefix("queue="), int(first), int(last), day.removeprefix("day="), file
        )


def _over(files: list[_File]) -> Iterator[_File]:
    """The files before the newest day, in index order."""
    newest = max((each.day for each in files), default="")
    return takewhile(lambda each: each.day != newest, files)


def _chunks(files: Iterable[_File]) -> Iterator[list[_File]]:
    """Consecutive files of one day that together make one file."""
    for _, of_day in groupby(files, lambda each: each.day):
        chunk: list[_File] = []
        size = 0
        for each in of_day:
            size += each.file.size
            if chunk and size > _FILE_BYTES:
                yield chunk
                chunk, size = [], each.file.size
            chunk.append(each)
        yield chunk


def _stage(files: list[_File], base: Place) -> None:
    directory = base / f"queue={files[0].queue}" / f"day={files[0].day}"
    merge([each.file for each in files], directory / f"{uuid.uuid4().hex}.parquet")

"""Days that are over, once more in large files: compaction where files cannot be exchanged.

An object store has no step in which a row goes from one file to another: whoever lists a table
would see it twice, or not at all, or a file would change under its reader. So the table stays as it
is. The large files are a table of their own, ``compacted/<table>``, landed like any other.

Invariant: of each queue ``compacted/<table>`` has every row below some index, once, and no other.
It grows by one file at a time. Days only say how far to go, so nothing depends on a clock.
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

# An object store copies 5 GiB at most in one step, and no file of bronze is much larger than this.
_FILE_BYTES = 1024 * 1024 * 1024


def days_table(table: str) -> str:
    """A path in the lake."""
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
    """Every day of a queue after which it has another; the newest entry's rows do not count yet.

    ``number`` is the column that counts. A pipeline may run meanwhile. Raises `LakeInUse` when
    another compaction does.
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
    """Of each queue an index below which every row is in the table by now.

    All entries but the newest are done with. A list that begins after this has all their files.
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
    """Up to the newest day, in the order of the indexes."""
    newest = max((each.day for each in files), default="")
    return takewhile(lambda each: each.day != newest, files)


def _chunks(files: Iterable[_File]) -> Iterator[list[_File]]:
    """In order, each of one day and of a size that makes one file."""
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

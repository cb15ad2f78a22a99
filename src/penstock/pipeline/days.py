"""Past days, copied into large files: compaction for object stores.

An object store cannot move a row from one file to another atomically: a reader could see it twice,
or not at all, or a file could change while it is read. So the table stays as it is, and the large
files are a table of their own, ``compacted/<table>``, landed like any other.

Invariant: for each queue, ``compacted/<table>`` has every row below some index, once, and no other.
It grows by one file at a time, which has all rows of a range that begins where the last one ended.
Days only limit how far to go, so nothing depends on a clock. See docs/decisions/0023.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, pairwise, takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.compaction import Compacted, Compacting, Show, columns_of, merge
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing
from penstock.pipeline.place import Place

__all__ = ["Stage", "compact_days", "days_job", "days_table", "limits_of"]

# An object store copies at most 5 GiB at once, and no file of bronze is much larger than this.
_FILE_BYTES = 1024 * 1024 * 1024
# Concurrent requests to an object store, which mostly wait.
_AT_ONCE = 16

Stage = Callable[[Sequence[Place], Place, str, range | None], None]
"""Writes the rows of some files into one file of a new directory.

The column is that of the index; with a range, only rows whose index is in it.
"""


def days_table(table: str) -> str:
    """The table's path in the lake."""
    return f"compacted/{table}"


def days_job(table: str) -> str:
    return f"compacted-{table}"


def limits_of(table: str, newest: Entry, landed: Mapping[str, int]) -> dict[str, int]:
    """For each queue, an index below which every row is in the table by now, and no row is added.

    ``landed`` is the next index of each queue as of ``newest``. All entries before that one are
    complete, so a listing that starts now has all their files.
    """
    limits = dict(landed)
    for move in newest.files:
        name, queue, *_ = move.path.split("/")
        queue = queue.removeprefix("queue=")
        if name == table and queue in limits:
            assert move.first is not None
            limits[queue] = min(limits[queue], move.first)
    return limits


class _File(NamedTuple):
    queue: str
    first: int
    last: int
    day: str
    file: Place


class _Kind(NamedTuple):
    """What the rows of a file have in common. `columns` are those of a file that Spark wrote."""

    day: str
    columns: bytes | None


class _Span(NamedTuple):
    """All rows of a queue from one index to another, if they are of one kind."""

    kind: _Kind
    first: int
    last: int
    bytes: int


def compact_days(
    lake: Lake,
    table: str,
    number: str,
    limits: Mapping[str, int],
    *,
    stage: Stage | None = None,
    show: Show = lambda _: None,
) -> Compacted:
    """Compact every day of a queue but its newest, below the limit of the queue (`limits_of`).

    ``number`` is the index column. A pipeline may run at the same time. Raises `LakeInUse` if
    another compaction runs.
    """
    stage = stage or _stage
    landing = Landing(lake, days_job(table))
    done = landing.recover().progress
    before = after = 0
    show(Compacting(days_table(table), "", Compacted(before, after)))
    found = sorted(_files(lake.table(table)), key=lambda each: each[:2])
    for queue, of_queue in groupby(found, lambda each: each.queue):
        files = [each for each in of_queue if each.first < limits.get(queue, 0)]
        rows = range(done.get(queue, 0), _end_of_past_days(files))
        kinds = _kinds(each for each in files if _overlap(each, rows))
        for span in _joined(_spans(kinds, number, rows)):
            part = range(span.first, span.last + 1)
            some = [
                each for each, kind in kinds.items() if kind == span.kind and _overlap(each, part)
            ]
            is_whole = all(_is_inside(each, part) for each in some)
            directory = f"queue={queue}/day={span.kind.day}"
            show(Compacting(days_table(table), directory, Compacted(before, after)))
            target = landing.staging / days_table(table) / directory
            stage([each.file for each in some], target, number, None if is_whole else part)
            # One file, so that none can be visible before those with lower indexes.
            [move] = landing.staged(days_table(table), number)
            landing.land({queue: part.stop}, [move])
            before += sum(each.last in part for each in some)
            after += 1
    landing.trim()
    total = Compacted(before, after)
    show(Compacting(days_table(table), "", total))
    return total


def _files(base: Place) -> Iterator[_File]:
    for file in base.files(".parquet"):
        queue, day, _ = PurePosixPath(file.below(base)).parts
        first, last = file.name.removesuffix(".parquet").split("-")
        yield _File(
            queue.removeprefix("queue="), int(first), int(last), day.removeprefix("day="), file
        )


def _end_of_past_days(files: list[_File]) -> int:
    """Where the day begins that the newest rows have: it goes on, whatever the others are."""
    latest = sorted(files, key=lambda each: each.last, reverse=True)
    of_today = takewhile(lambda each: each.day == latest[0].day, latest)
    return min((each.first for each in of_today), default=0)


def _overlap(file: _File, rows: range) -> bool:
    return file.first < rows.stop and rows.start <= file.last


def _is_inside(file: _File, rows: range) -> bool:
    return file.first in rows and file.last in rows


def _kinds(files: Iterable[_File]) -> dict[_File, _Kind]:
    chosen = list(files)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        columns = pool.map(lambda each: columns_of(each.file), chosen)
        return {each: _Kind(each.day, some) for each, some in zip(chosen, columns, strict=True)}


def _spans(kinds: Mapping[_File, _Kind], number: str, rows: range) -> Iterator[_Span]:
    """In the order of the indexes, and together all rows of the range."""
    for files in _overlapping(kinds):
        size = sum(each.file.size for each in files)
        is_small = len(files) == 1 or size <= _FILE_BYTES
        is_whole = all(_is_inside(each, rows) for each in files)
        if is_small and is_whole and len({kinds[each] for each in files}) == 1:
            last = max(each.last for each in files)
            yield _Span(kinds[files[0]], files[0].first, last, size)
        else:
            yield from _spans_by_row({each: kinds[each] for each in files}, number, rows)


def _overlapping(files: Iterable[_File]) -> Iterator[list[_File]]:
    """Groups of files such that no file overlaps one of another group."""
    group: list[_File] = []
    last = -1
    for each in files:
        if group and each.first > last:
            yield group
            group = []
        group.append(each)
        last = max(last, each.last)
    if group:
        yield group


def _spans_by_row(kinds: Mapping[_File, _Kind], number: str, rows: range) -> Iterator[_Span]:
    """Like `_spans`, from the indexes in the files, and none larger than a file may be."""
    every = list(dict.fromkeys(kinds.values()))
    found = pa.concat_tables(
        _indexes(each.file, number, every.index(kind)) for each, kind in kinds.items()
    ).sort_by("index")
    bytes_per_row = sum(each.file.size for each in kinds) / found.num_rows
    most = max(1, int(_FILE_BYTES / bytes_per_row))
    inside = (pc.field("index") >= rows.start) & (pc.field("index") < rows.stop)
    found = found.filter(inside).combine_chunks()
    index, kind = found["index"], found["kind"]
    changes = pc.indices_nonzero(pc.not_equal(kind[1:], kind[:-1])).to_pylist()
    starts = [0, *(each + 1 for each in changes), found.num_rows]
    for start, stop in pairwise(starts):
        for at in range(start, stop, most):
            end = min(at + most, stop)
            yield _Span(
                every[kind[at].as_py()],
                index[at].as_py(),
                index[end - 1].as_py(),
                round((end - at) * bytes_per_row),
            )


def _indexes(file: Place, number: str, kind: int) -> pa.Table:
    with file.open() as opened:
        index = pq.ParquetFile(opened).read([number])[number]
    return pa.table({"index": index, "kind": pa.repeat(pa.scalar(kind, pa.int32()), len(index))})


def _joined(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Neighbours of one kind that together make one file."""
    whole: _Span | None = None
    for span in spans:
        if whole is None:
            whole = span
        elif span.kind == whole.kind and whole.bytes + span.bytes <= _FILE_BYTES:
            whole = whole._replace(last=span.last, bytes=whole.bytes + span.bytes)
        else:
            yield whole
            whole = span
    if whole is not None:
        yield whole


def _stage(files: Sequence[Place], directory: Place, number: str, rows: range | None) -> None:
    merge(files, directory / f"{uuid.uuid4().hex}.parquet", number, rows)

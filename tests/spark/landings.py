"""Batches that are landed by hand, without Spark, and a process that ends at any step of them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.http.v1 import arrow_columns
from penstock.pipeline.bronze import EVENTS, MESSAGES, Feed
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.place import Place

__all__ = [
    "DAY",
    "ending_at",
    "files",
    "lakes_ended_at_each_step",
    "land",
    "land_bodies",
    "land_events",
    "land_messages",
    "rows",
    "stage",
    "stage_rows",
]

DAY = "2030-01-31"
# Of the files: the queue is in their paths.
_BRONZE = arrow_columns.MESSAGES.remove(0)
_EVENTS = arrow_columns.EVENTS.remove(0)
# By these alone anything changes on a disk.
STEPS = ("write", "move_to", "remove", "sync")


def stage(
    landing: Landing,
    first: int,
    count: int,
    name: str = "part-0",
    *,
    day: str = DAY,
    table: str = "bronze",
) -> None:
    stage_rows(landing, range(first, first + count), name, day=day, table=table)


def stage_rows(
    landing: Landing,
    indexes: Iterable[int],
    name: str = "part-0",
    *,
    day: str = DAY,
    table: str = "bronze",
) -> None:
    directory = landing.staging / table / "queue=orders" / f"day={day}"
    with (directory / f"{name}-{uuid.uuid4().hex}.parquet").write() as file:
        pq.write_table(pa.table({"index": indexes}), file)


def land(landing: Landing, first: int, count: int, *, day: str = DAY) -> None:
    stage(landing, first, count, day=day)
    landing.land({"orders": first + count}, landing.staged("bronze", "index"))


def land_bodies(lake: Lake, bodies: Sequence[bytes], *, day: str = DAY) -> None:
    """A batch of bronze with these messages, after those that are there."""
    first = Landing(lake, "bronze").last().progress.get("orders", 0)
    at = datetime.fromisoformat(day).replace(tzinfo=UTC)
    land_messages(
        lake,
        [
            {"index": first + n, "id": f"id-{first + n}", "body": body, "created_at": at}
            for n, body in enumerate(bodies)
        ],
    )


def land_messages(lake: Lake, rows: Sequence[dict[str, Any]]) -> None:
    """A batch of bronze with these messages of `orders`."""
    _land_rows(lake, MESSAGES, _BRONZE, rows)


def land_events(lake: Lake, rows: Sequence[dict[str, Any]]) -> None:
    """A batch of events of `orders`, after those that are there."""
    first = Landing(lake, "events").last().progress.get("orders", 0)
    numbered = [{"events_index": first + n, **row} for n, row in enumerate(rows)]
    _land_rows(lake, EVENTS, _EVENTS, numbered)


def _land_rows(lake: Lake, feed: Feed, schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> None:
    landing = Landing(lake, feed.table)
    by_day: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_day.setdefault(row[feed.at].date().isoformat(), []).append(row)
    for day, some in by_day.items():
        directory = landing.staging / feed.table / "queue=orders" / f"day={day}"
        with (directory / f"{uuid.uuid4().hex}.parquet").write() as file:
            pq.write_table(pa.Table.from_pylist(some, schema), file)
    end = max(row[feed.number] for row in rows) + 1
    landing.land({"orders": end}, landing.staged(feed.table, feed.number))


def files(lake: Lake, table: str = "bronze") -> list[Place]:
    return lake.table(table).files(".parquet")


def rows(lake: Lake, table: str = "bronze") -> list[int]:
    """As whoever reads every file of the table sees them."""
    found = []
    for each in files(lake, table):
        with each.open() as file:
            found += pq.read_table(file)["index"].to_pylist()
    return sorted(found)


class _Ended(BaseException):
    """As `kill -9` would: no handler of the code under test gets to run."""


def lakes_ended_at_each_step(
    before: Lake, work: Callable[[Lake], object], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    """Copies of a lake in which ``work`` ended before its first step, its second, to the last."""
    # A process ends, not the machine, so nothing has to be synced.
    monkeypatch.setattr(Place, "sync", lambda _: None)
    for step in count():
        lake = Lake(Path(before.root).with_name(f"{before.root.name}-{step}"))
        shutil.copytree(before.root, lake.root)
        with monkeypatch.context() as patch, ending_at(step, patch) as has_ended:
            work(lake)
        yield Lake(lake.root)
        if not has_ended():
            return


@contextmanager
def ending_at(step: int, patch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """Ends the block before that step, if it gets there; the result tells whether it did."""
    done = 0

    def limited(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            nonlocal done
            done += 1
            # From then on nothing happens any more, whatever other threads are at.
            if done > step:
                raise _Ended
            return original(*words)

        return call

    for name in STEPS:
        patch.setattr(Place, name, limited(getattr(Place, name)))
    with suppress(_Ended):
        yield lambda: done > step

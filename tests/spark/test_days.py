"""Days that are over in large files, beside a table whose files stay as they were landed."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import NoReturn

import pyarrow.parquet as pq
import pytest

from penstock.pipeline import days
from penstock.pipeline.compaction import Compacted
from penstock.pipeline.days import compact_days, limits_of
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.place import Place
from penstock.pipeline.run import compact
from penstock.pipeline.status import status_of
from tests.spark.landings import (
    ending_at,
    files,
    lakes_ended_at_each_step,
    land,
    rows,
    stage,
    stage_rows,
)

COMPACTED = "compacted/bronze"


def no_spark() -> NoReturn:
    raise AssertionError("an object store needs no Spark for this")


MONDAY, TUESDAY, WEDNESDAY = "2030-02-04", "2030-02-05", "2030-02-06"


def compact_bronze(lake: Lake) -> Compacted:
    newest = Landing(lake, "bronze").last()
    limits = limits_of("bronze", newest, newest.progress)
    return compact_days(lake, "bronze", "index", limits)


def land_each(lake: Lake, *days: str) -> None:
    """A batch of ten rows for each, after those that are there."""
    landing = Landing(lake, "bronze")
    for day in days:
        land(landing, landing.last().progress.get("orders", 0), 10, day=day)


def names(lake: Lake, table: str = COMPACTED) -> list[str]:
    base = lake.table(table)
    return [file.below(base).removeprefix("queue=orders/") for file in files(lake, table)]


def name(day: str, first: int, last: int) -> str:
    return f"day={day}/{first:020d}-{last:020d}.parquet"


def test_on_s3_days_that_are_over_become_one_file_each_in_another_table(bucket: str) -> None:
    lake = Lake(f"{bucket}/lake")
    land_each(lake, MONDAY, MONDAY, MONDAY, TUESDAY, TUESDAY)
    before = names(lake, "bronze")

    done = compact(lake, no_spark)

    assert (done[COMPACTED].before, done[COMPACTED].after) == (3, 1)
    assert names(lake) == [name(MONDAY, 0, 29)]
    assert rows(lake, COMPACTED) == list(range(30))
    # Who reads the table sees what was there.
    assert names(lake, "bronze") == before
    assert {each.table: (each.files, each.rows) for each in status_of(lake).tables} == {
        "bronze": (5, 50),
        COMPACTED: (1, 30),
    }
    # And the next one goes on.
    land_each(lake, WEDNESDAY, WEDNESDAY)
    assert compact(lake, no_spark)[COMPACTED].after == 1
    assert names(lake) == [name(MONDAY, 0, 29), name(TUESDAY, 30, 49)]
    assert compact(lake, no_spark)[COMPACTED].after == 0


def test_whatever_step_a_compaction_was_ended_at_no_row_is_there_twice_or_left_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_each(lake, MONDAY, MONDAY, MONDAY, TUESDAY, WEDNESDAY, WEDNESDAY)
    # Given a day that is too large for one file
    monkeypatch.setattr(days, "_FILE_BYTES", sum(file.size for file in files(lake)[:2]))
    steps = 0

    for ended in lakes_ended_at_each_step(lake, compact_bronze, monkeypatch):
        seen = rows(ended, COMPACTED)
        assert seen in [list(range(count)) for count in (0, 20, 30, 40)]

        compact_bronze(ended)

        assert names(ended) == [
            name(MONDAY, 0, 19),
            name(MONDAY, 20, 29),
            name(TUESDAY, 30, 39),
        ]
        assert rows(ended, COMPACTED) == list(range(40))
        assert rows(ended) == list(range(60))
        steps += 1
    assert steps > 10


def test_what_a_batch_has_not_moved_yet_is_left_for_later(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second file may be there before its first."""
    land_each(lake, MONDAY, TUESDAY)
    landing = Landing(lake, "bronze")
    stage(landing, 20, 10, day=TUESDAY)
    stage(landing, 30, 10, day=WEDNESDAY)
    move_to = Place.move_to

    def crash(self: Place, target: Place) -> None:
        if TUESDAY in target.path:
            raise KeyboardInterrupt
        move_to(self, target)

    # They are moved in this order.
    staged = landing.staged("bronze", "index")
    moves = sorted(staged, key=lambda move: move.path, reverse=True)
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Place, "move_to", crash)
        landing.land({"orders": 40}, moves)
    assert rows(lake) == [*range(20), *range(30, 40)]

    compact_bronze(lake)
    assert rows(lake, COMPACTED) == list(range(10))

    Landing(lake, "bronze").recover()
    land_each(lake, WEDNESDAY)
    compact_bronze(lake)
    assert names(lake) == [name(MONDAY, 0, 9), name(TUESDAY, 10, 29)]


def test_a_day_that_comes_again_because_a_clock_was_wrong_is_in_once(lake: Lake) -> None:
    land_each(lake, MONDAY, TUESDAY, MONDAY, TUESDAY)
    assert compact_bronze(lake).after == 2
    land_each(lake, WEDNESDAY, WEDNESDAY)

    compact_bronze(lake)

    assert rows(lake, COMPACTED) == list(range(40))
    assert len(names(lake)) == 4


def test_a_day_far_ahead_does_not_keep_the_others_waiting(lake: Lake) -> None:
    land_each(lake, MONDAY, "2099-01-01", MONDAY, TUESDAY, TUESDAY)

    compact_bronze(lake)

    assert rows(lake, COMPACTED) == list(range(30))


def test_files_that_overlap_are_cut_where_the_day_changes_at_whatever_step_it_ended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock was set back twice in a batch; what a task writes of a day is one file."""
    landing = Landing(lake, "bronze")
    stage_rows(landing, [*range(10), *range(20, 30)], day=MONDAY)
    stage_rows(landing, [*range(10, 20), *range(30, 40)], day=TUESDAY)
    landing.land({"orders": 40}, landing.staged("bronze", "index"))
    # The day of the last file goes on, and so it does not matter what comes after it begins
    land_each(lake, TUESDAY)
    compact_bronze(lake)
    assert rows(lake, COMPACTED) == list(range(10))
    land_each(lake, WEDNESDAY, WEDNESDAY)

    for ended in lakes_ended_at_each_step(lake, compact_bronze, monkeypatch):
        assert rows(ended, COMPACTED) in [list(range(count)) for count in (10, 20, 30, 50)]

        compact_bronze(ended)

        assert names(ended) == [
            name(MONDAY, 0, 9),
            name(MONDAY, 20, 29),
            name(TUESDAY, 10, 19),
            name(TUESDAY, 30, 49),
        ]
        assert rows(ended, COMPACTED) == list(range(50))


def test_files_that_overlap_and_are_too_large_for_one_are_cut_where_the_file_is_full(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(lake, "bronze")
    stage_rows(landing, range(0, 1000, 2), day=MONDAY)
    stage_rows(landing, range(1, 1000, 2), day=MONDAY)
    landing.land({"orders": 1000}, landing.staged("bronze", "index"))
    land_each(lake, TUESDAY, TUESDAY)
    sizes = [file.size for file in files(lake)[:2]]
    monkeypatch.setattr(days, "_FILE_BYTES", sum(sizes) * 2 // 5)

    for ended in lakes_ended_at_each_step(lake, compact_bronze, monkeypatch):
        seen = rows(ended, COMPACTED)
        assert seen == list(range(len(seen)))

        compact_bronze(ended)

        assert names(ended) == [
            name(MONDAY, 0, 399),
            name(MONDAY, 400, 799),
            name(MONDAY, 800, 999),
        ]
        assert rows(ended, COMPACTED) == list(range(1000))


# With 1221, all rows of a file that are read at once are outside the range.
@pytest.mark.parametrize("seed", [*range(40), 1221])
def test_random_batches_and_compactions_that_end_anywhere_leave_every_row_below_an_index_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Batches whose files overlap, with days in any order, and indexes that are in other tables."""
    random = Random(seed)
    monkeypatch.setattr(Place, "sync", lambda _: None)
    monkeypatch.setattr(days, "_FILE_BYTES", random.choice([1500, 4000, 1024**3]))
    day_of: dict[int, str] = {}

    def land_some() -> None:
        landing = Landing(lake, "bronze")
        first = landing.recover().progress.get("orders", 0)
        stop = first + random.randint(1, 40)
        some = sorted(random.sample(range(first, stop), random.randint(1, stop - first)))
        day = random.choice([MONDAY, TUESDAY])
        tasks: dict[tuple[str, int], list[int]] = {}
        for index in some:
            if random.random() < 0.05:
                day = random.choice([MONDAY, TUESDAY, WEDNESDAY])
            day_of[index] = day
            tasks.setdefault((day, random.randint(0, 2)), []).append(index)
        for (of_day, _), indexes in tasks.items():
            stage_rows(landing, indexes, day=of_day)
        moves = landing.staged("bronze", "index")
        random.shuffle(moves)
        landing.land({"orders": stop}, moves)

    def check() -> list[int]:
        seen = rows(lake, COMPACTED)
        assert seen == sorted(day_of)[: len(seen)]
        for file in files(lake, COMPACTED):
            with file.open() as opened:
                found = pq.ParquetFile(opened).read()["index"].to_pylist()
            assert {f"day={day_of[index]}" for index in found} == {file.parent.name}
        return seen

    for _ in range(12):
        step = random.randint(0, 40)
        with monkeypatch.context() as patch, ending_at(step, patch):
            if random.random() < 0.5:
                land_some()
            else:
                compact_bronze(lake)
        landed = Landing(lake, "bronze").last().progress.get("orders", 0)
        for index in [each for each in day_of if each >= landed]:
            del day_of[index]
        check()
    Landing(lake, "bronze").recover()
    before = len(rows(lake))
    land_each(lake, "2030-02-07", "2030-02-07")
    day_of.update(dict.fromkeys(rows(lake)[before:], "2030-02-07"))
    compact_bronze(lake)
    assert check() == rows(lake)[:before]

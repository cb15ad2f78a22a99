"""The log of a job stays short, and a lake reads exactly once whatever was removed of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from penstock.pipeline.errors import LakeDamaged, LakeInUse
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Entry, Landing
from penstock.pipeline.place import Place
from penstock.pipeline.run import trim_logs
from penstock.pipeline.status import status_of
from tests.spark.landings import lakes_ended_at_each_step, land, rows, stage


def numbers(lake: Lake, job: str = "bronze") -> list[int]:
    return [int(file.name.removesuffix(".json")) for file in lake.log(job).files()]


def counted(lake: Lake) -> dict[str, int]:
    return {each.table: each.rows for each in status_of(lake).tables}


def follow(lake: Lake, job: str) -> None:
    """As silver does: what bronze has landed since, by its entries."""
    landing = Landing(lake, job)
    new = Landing(lake, "bronze").entries(landing.recover().progress.get("bronze", 0))
    for move in [move for entry in new for move in entry.files]:
        assert move.first is not None
        stage(landing, move.first, move.rows, f"part-{move.first}", table=job)
    if new:
        landing.land({"bronze": new[-1].number}, landing.staged(job, "index"))


def run(lake: Lake, *, upto: int) -> None:
    """Batches, silver and gold after them, and the logs trimmed."""
    landing = Landing(lake, "bronze")
    for first in range(landing.recover().progress.get("orders", 0), upto, 10):
        land(landing, first, 10)
    for job in ("silver", "gold"):
        follow(lake, job)
    trim_logs(lake)


def test_the_newest_entry_stands_for_all_before_it(anywhere: Lake) -> None:
    for first in (0, 10, 20):
        land(Landing(anywhere, "bronze"), first, 10)

    Landing(anywhere, "bronze").trim()

    assert numbers(anywhere) == [3]
    landing = Landing(anywhere, "bronze")
    assert landing.recover().progress == {"orders": 30}
    land(landing, 30, 5)
    assert numbers(anywhere) == [3, 4]
    assert rows(anywhere) == list(range(35))
    assert counted(anywhere) == {"bronze": 35}


def test_entries_that_a_job_is_yet_to_read_stay(lake: Lake) -> None:
    for first in range(0, 50, 10):
        land(Landing(lake, "bronze"), first, 10)
    follow(lake, "gold")
    land(Landing(lake, "bronze"), 50, 10)
    trim_logs(lake)
    assert numbers(lake) == [1, 2, 3, 4, 5, 6]  # of silver there is nothing yet
    follow(lake, "silver")

    trim_logs(lake)

    # The newest is looked at after a crash, and gold has not read it.
    assert numbers(lake) == [6]
    assert numbers(lake, "silver") == [1]
    land(Landing(lake, "bronze"), 60, 10)
    for job in ("silver", "gold"):
        follow(lake, job)
        assert rows(lake, job) == list(range(70))


def test_a_lake_reads_exactly_once_whatever_step_it_was_ended_at(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, upto=10)
    steps = 0
    for ended in lakes_ended_at_each_step(lake, lambda each: run(each, upto=30), monkeypatch):
        seen = rows(ended)
        # Of the batch that was under way everything or nothing, as it is one file.
        assert seen == list(range(len(seen)))
        assert counted(ended)["bronze"] - len(seen) in (0, 10)

        run(ended, upto=30)

        for table in ("bronze", "silver", "gold"):
            assert rows(ended, table) == list(range(30)), steps
            assert counted(ended)[table] == 30
            assert len(numbers(ended, table)) == 1
        steps += 1
    assert steps > 30


def test_a_pipeline_that_was_overtaken_does_not_land_under_a_number_that_was_removed(
    bucket: str,
) -> None:
    """On a disk there is a lock; in an object store this is what keeps two apart."""
    lake = Lake(bucket)
    first, slow = Landing(lake, "bronze"), Landing(lake, "bronze")
    slow.recover()
    stage(slow, 0, 10)
    moves = slow.staged("bronze", "index")
    for at in (0, 10, 20):
        land(first, at, 10)
    first.trim()

    with pytest.raises(LakeInUse, match="another pipeline has landed files"):
        slow.land({"orders": 10}, moves)

    # What it has created is nobody's, and goes with the next.
    assert numbers(lake) == [1, 3]
    assert Landing(lake, "bronze").recover().progress == {"orders": 30}
    assert rows(lake) == list(range(30))
    first.trim()
    assert numbers(lake) == [3]


def test_an_entry_that_is_removed_while_somebody_looks_for_the_newest_is_no_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Landing(lake, "bronze")
    land(writer, 0, 10)
    found = Landing._numbers
    rounds = iter([True, False])

    def overtaken(self: Landing) -> list[int]:
        listed = found(self)
        if self is reader and next(rounds):
            land(writer, 10, 10)
            writer.trim()
        return listed

    monkeypatch.setattr(Landing, "_numbers", overtaken)
    reader = Landing(lake, "bronze")

    assert reader.last().progress == {"orders": 20}


def test_an_entry_is_finished_once_its_files_are_in_their_tables(lake: Lake) -> None:
    land(Landing(lake, "bronze"), 0, 10)
    is_shown, seen = threading.Event(), threading.Event()

    def show(_entry: Entry, _base: Place) -> None:
        is_shown.set()
        assert seen.wait(10)

    def land_slowly() -> None:
        land(Landing(lake, "bronze", show), 10, 10)

    with ThreadPoolExecutor(1) as other:
        landed = other.submit(land_slowly)
        assert is_shown.wait(10)
        follower = Landing(lake, "bronze")
        under_way = [entry.number for entry in follower.finished()], len(follower.entries())
        seen.set()
        landed.result()

    assert under_way == ([1], 2)
    assert [entry.number for entry in follower.finished(above=1)] == [2]


def test_an_entry_that_somebody_took_away_is_named(anywhere: Lake) -> None:
    for first in (0, 10, 20):
        land(Landing(anywhere, "bronze"), first, 10)
    (anywhere.log("bronze") / f"{2:012d}.json").remove()

    with pytest.raises(LakeDamaged, match=r"0+2\.json is missing"):
        Landing(anywhere, "bronze").entries(1)


def test_a_lake_from_before_entries_had_totals_keeps_its_log_until_they_do(lake: Lake) -> None:
    for first in (0, 10):
        land(Landing(lake, "bronze"), first, 10)
    for file in lake.log("bronze").files():
        early = msgspec.json.decode(file.read())
        del early["totals"]
        file.replace(msgspec.json.encode(early))

    assert Landing(lake, "bronze").trim() == 0
    assert counted(lake) == {"bronze": 20}
    land(Landing(lake, "bronze"), 20, 5)

    assert Landing(lake, "bronze").trim() == 2
    assert counted(lake) == {"bronze": 25}

"""What each crash leaves in a lake, step by step. No Spark: the files are made by hand.

On a disk and in an object store alike, but for compaction.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from penstock.errors import InvalidArgument
from penstock.pipeline import compaction, place
from penstock.pipeline.compaction import compact_table
from penstock.pipeline.errors import LakeDamaged, LakeInUse
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.place import Place
from tests.spark.landings import DAY, files, land, rows, stage


@pytest.fixture
def landing(lake: Lake) -> Landing:
    """On a disk."""
    return Landing(lake, "bronze")


def test_a_landed_file_is_called_after_its_indexes(anywhere: Lake) -> None:
    landing = Landing(anywhere, "bronze")

    land(landing, 3, 4)

    assert [file.name for file in files(anywhere)] == [f"{3:020d}-{6:020d}.parquet"]
    assert landing.last().progress == {"orders": 7}
    assert anywhere.staging("bronze").files() == []


def test_a_crash_before_the_entry_leaves_nothing(anywhere: Lake) -> None:
    land(Landing(anywhere, "bronze"), 0, 5)
    stage(Landing(anywhere, "bronze"), 5, 5)
    landing = Landing(anywhere, "bronze")

    assert landing.recover().progress == {"orders": 5}
    assert rows(anywhere) == list(range(5))
    land(landing, 5, 3)

    assert rows(anywhere) == list(range(8))
    assert anywhere.staging("bronze").files() == []


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_between_the_moves_is_made_up_for(
    anywhere: Lake, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.pipeline.landing._AT_ONCE", 1)
    landing = Landing(anywhere, "bronze")
    stage(landing, 0, 5, "part-0")
    stage(landing, 5, 5, "part-1")
    move_to, done = Place.move_to, 0

    def crash(self: Place, target: Place) -> None:
        nonlocal done
        if self.path.endswith(".parquet"):
            if done == moved:
                raise KeyboardInterrupt
            done += 1
        move_to(self, target)

    moves = landing.staged("bronze", "index")
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Place, "move_to", crash)
        landing.land({"orders": 10}, moves)
    assert len(files(anywhere)) == moved

    again = Landing(anywhere, "bronze").recover()

    assert again.progress == {"orders": 10}
    assert rows(anywhere) == list(range(10))


def test_a_move_that_is_made_again_changes_nothing(
    anywhere: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an object store the source is still there after a crash."""
    landing = Landing(anywhere, "bronze")
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Landing, "_is_over", _interrupt)
        land(landing, 0, 5)

    assert Landing(anywhere, "bronze").recover().progress == {"orders": 5}
    assert rows(anywhere) == list(range(5))


def _interrupt(*_: object) -> bool:
    raise KeyboardInterrupt


def test_of_two_pipelines_that_land_the_same_rows_one_ends_and_leaves_nothing(
    anywhere: Lake,
) -> None:
    """On a disk the lock comes first; in an object store this is what keeps them apart."""
    first, second = Landing(anywhere, "bronze"), Landing(anywhere, "bronze")
    first.recover()
    stage(first, 0, 5)
    second.recover()  # the first is alive: what it has staged must stay
    stage(second, 0, 8)

    first.land({"orders": 5}, first.staged("bronze", "index"))
    with pytest.raises(LakeInUse, match="another pipeline has landed files"):
        second.land({"orders": 8}, second.staged("bronze", "index"))

    assert rows(anywhere) == list(range(5))


def test_a_file_that_somebody_took_away_is_named(anywhere: Lake) -> None:
    landing = Landing(anywhere, "bronze")
    land(landing, 0, 5)
    files(anywhere)[0].remove()

    with pytest.raises(LakeDamaged, match=r"00000-0+4\.parquet was landed and is missing"):
        landing.recover()


def test_compaction_exchanges_a_directory_and_keeps_what_is_protected(
    lake: Lake, landing: Landing
) -> None:
    for first in range(0, 50, 10):
        land(landing, first, 10)
    newest = [move.path for move in landing.last().files]

    done = compact_table(lake, "bronze", protected=lambda: newest)

    names = [file.name for file in files(lake)]
    assert (done.before, done.after) == (4, 1)
    assert names == [f"{0:020d}-{39:020d}.parquet", f"{40:020d}-{49:020d}.parquet"]
    assert rows(lake) == list(range(50))
    assert compact_table(lake, "bronze", protected=lambda: newest).before == 0


def test_what_is_landed_during_a_compaction_keeps_its_files(lake: Lake, landing: Landing) -> None:
    """Silver and gold have yet to read them, by their names."""
    for first in range(0, 40, 10):
        land(landing, first, 10)
    read = landing.last().number

    def protected() -> list[str]:
        listed = [move.path for entry in landing.entries(read) for move in entry.files]
        land(landing, 50, 10)
        return listed

    # Given batches that are landed when it begins, and before it comes to their directory
    compact_table(lake, "bronze", protected=protected, show=lambda _: land(landing, 40, 10))

    every = [move.path for entry in landing.entries(read) for move in entry.files]
    assert len(every) >= 2
    assert all(lake.table(path).exists() for path in every)


def test_large_files_are_not_written_again(
    lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, 0, 5000)
    for first in range(5000, 5030, 10):
        land(landing, first, 10)
    large, small, *_ = (file.size for file in files(lake))
    monkeypatch.setattr(compaction, "_LARGE_BYTES", (large + small) // 2)

    done = compact_table(lake, "bronze")

    assert (done.before, done.after) == (3, 1)
    assert [file.name for file in files(lake)] == [
        f"{0:020d}-{4999:020d}.parquet",
        f"{5000:020d}-{5029:020d}.parquet",
    ]
    assert rows(lake) == list(range(5030))


def test_where_directories_cannot_be_exchanged_a_crash_between_two_renames_is_made_up_for(
    lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 30, 10):
        land(landing, first, 10)
    monkeypatch.setattr(compaction, "_exchange", lambda *_: False)
    rename = Path.rename

    def crash(self: Path, target: Path) -> Path:
        if target.parent.name == "queue=orders":
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "rename", crash)
        compact_table(lake, "bronze")
    assert not (lake.table("bronze") / f"queue=orders/day={DAY}").exists()

    compact_table(lake, "bronze")

    assert rows(lake) == list(range(30))
    assert len(files(lake)) == 1


def test_what_a_compaction_left_when_it_was_killed_is_no_part_of_the_table(
    lake: Lake, landing: Landing
) -> None:
    for first in range(0, 30, 10):
        land(landing, first, 10)
    junk = lake.staging("compact-bronze") / "0" / "half.parquet"
    junk.replace(b"PAR1")

    compact_table(lake, "bronze")

    assert rows(lake) == list(range(30))
    assert not junk.exists()


def test_an_object_store_that_overwrites_in_spite_of_the_condition_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(f"{bucket}/lake")
    with lake.lock():
        pass

    monkeypatch.setattr(place, "_put_new", lambda *_: True)
    with pytest.raises(InvalidArgument, match="in spite of If-None-Match"), lake.lock():
        pass


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("", "neither a directory nor s3://bucket/path"),
        ("file://", "neither a directory nor s3://bucket/path"),
        ("ftp://host/lake", "neither a directory nor s3://bucket/path"),
        ("s3://", "names no bucket"),
    ],
)
def test_other_locations_are_refused(location: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        Lake(location)

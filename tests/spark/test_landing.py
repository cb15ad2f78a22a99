"""What each crash leaves in a lake, step by step. No Spark: the files are made by hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.errors import InvalidArgument
from penstock.pipeline import compaction
from penstock.pipeline.compaction import compact_table
from penstock.pipeline.errors import LakeDamaged
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing

DIRECTORY = "queue=orders/day=2030-01-31"


def stage(landing: Landing, first: int, count: int, name: str = "part-0") -> None:
    directory = landing.staging / "bronze" / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    table = pa.table({"index": range(first, first + count)})
    pq.write_table(table, directory / f"{name}.parquet")


def land(landing: Landing, first: int, count: int) -> None:
    stage(landing, first, count)
    landing.land({"orders": first + count}, landing.staged("bronze", "index"))


def rows(lake: Lake) -> list[int]:
    found = ds.dataset(lake.table("bronze"), partitioning="hive").to_table()
    return sorted(found["index"].to_pylist())


@pytest.fixture
def landing(lake: Lake) -> Landing:
    return Landing(lake, "bronze")


def test_a_landed_file_is_called_after_its_indexes(lake: Lake, landing: Landing) -> None:
    land(landing, 3, 4)

    [file] = lake.table("bronze").rglob("*.parquet")
    assert file.name == f"{3:020d}-{6:020d}.parquet"
    assert landing.last().progress == {"orders": 7}
    assert not landing.staging.exists()


def test_a_crash_before_the_entry_leaves_nothing(lake: Lake, landing: Landing) -> None:
    land(landing, 0, 5)
    stage(landing, 5, 5)

    assert landing.recover().progress == {"orders": 5}
    assert rows(lake) == list(range(5))
    assert not landing.staging.exists()


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_between_the_moves_is_made_up_for(
    lake: Lake, landing: Landing, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(landing, 0, 5, "part-0")
    stage(landing, 5, 5, "part-1")
    replace, done = Path.replace, 0

    def crash(self: Path, target: Path) -> Path:
        nonlocal done
        if self.suffix == ".parquet":
            if done == moved:
                raise KeyboardInterrupt
            done += 1
        return replace(self, target)

    moves = landing.staged("bronze", "index")
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "replace", crash)
        landing.land({"orders": 10}, moves)
    assert len(list(lake.table("bronze").rglob("*.parquet"))) == moved

    again = Landing(lake, "bronze").recover()

    assert again.progress == {"orders": 10}
    assert rows(lake) == list(range(10))


def test_a_file_that_somebody_took_away_is_named(lake: Lake, landing: Landing) -> None:
    land(landing, 0, 5)
    next(lake.table("bronze").rglob("*.parquet")).unlink()

    with pytest.raises(LakeDamaged, match=r"00000-0+4\.parquet was landed and is missing"):
        landing.recover()


def test_compaction_exchanges_a_directory_and_keeps_what_is_protected(
    lake: Lake, landing: Landing
) -> None:
    for first in range(0, 50, 10):
        land(landing, first, 10)
    newest = [move.path for move in landing.last().files]

    done = compact_table(lake, "bronze", protected=newest)

    names = sorted(file.name for file in lake.table("bronze").rglob("*.parquet"))
    assert (done.directories, done.before, done.after) == (1, 4, 1)
    assert names == [f"{0:020d}-{39:020d}.parquet", f"{40:020d}-{49:020d}.parquet"]
    assert rows(lake) == list(range(50))
    assert compact_table(lake, "bronze", protected=newest).directories == 0


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
    assert not (lake.table("bronze") / DIRECTORY).exists()

    compact_table(lake, "bronze")

    assert rows(lake) == list(range(30))
    assert len(list(lake.table("bronze").rglob("*.parquet"))) == 1


def test_what_a_compaction_left_when_it_was_killed_is_no_part_of_the_table(
    lake: Lake, landing: Landing
) -> None:
    for first in range(0, 30, 10):
        land(landing, first, 10)
    junk = lake.staging("compact-bronze") / "0"
    junk.mkdir(parents=True)
    (junk / "half.parquet").write_bytes(b"PAR1")

    compact_table(lake, "bronze")

    assert rows(lake) == list(range(30))
    assert not (junk / "half.parquet").exists()


def test_an_object_store_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no atomic rename"):
        Lake("s3://bucket/lake")

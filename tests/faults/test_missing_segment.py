"""A segment that is gone is noticed at start."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CorruptLog
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.verify import verify
from tests.faults.store import make_history, open_store


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
async def test_a_start_without_one_of_its_segments_is_refused(tmp_path: Path, closed: bool) -> None:
    # Given a directory, and each of its segments and packs in turn
    path = tmp_path / "data"
    await make_history(path, closed=closed)
    packed = {p.name[:16] for p in path.glob("*.pack")} if closed else set()
    logs = [p for p in path.glob("0*.log") if p.stem not in packed]
    logs += path.glob("*.pack") if closed else []
    assert len(logs) > 3
    for log in logs:
        # When it is missing
        hidden = log.rename(tmp_path / "hidden")
        with pytest.raises(CorruptLog) as error:
            await open_store(path)
        damages = verify(DiskFiles(path)).damages
        hidden.rename(log)
        # Then the start is refused, with its name and what to do
        assert error.value.code == "corrupt_log"
        assert error.value.file == log.name
        assert "is missing" in str(error.value)
        assert "penstock wal repair" in str(error.value)
        # and verify says the same
        assert [damage.file for damage in damages] == [log.name]


async def test_a_segment_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    await make_history(path, closed=False)
    first, second = sorted(path.glob("0*.log"))[1:3]
    second.write_bytes(first.read_bytes())
    with pytest.raises(CorruptLog) as error:
        await open_store(path)
    assert error.value.file == second.name
    assert verify(DiskFiles(path)).damages[0].file == second.name

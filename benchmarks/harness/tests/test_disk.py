from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engine.memory import measure_memory
from benchmarks.harness.disk import BareDisk, bytes_written


def test_the_bare_disk_appends_what_it_is_given(tmp_path: Path) -> None:
    with BareDisk(tmp_path / "log") as disk:
        disk.append(b"one")
        disk.append(b"two")

    assert (tmp_path / "log").read_bytes() == b"onetwo"


def test_the_bare_disk_wants_a_fresh_file(tmp_path: Path) -> None:
    (tmp_path / "log").touch()

    with pytest.raises(FileExistsError), BareDisk(tmp_path / "log"):
        pass


def test_bytes_handed_to_write_are_counted(tmp_path: Path) -> None:
    before = bytes_written()
    with BareDisk(tmp_path / "log") as disk:
        disk.append(b"x" * 10_000)

    assert bytes_written() - before == 10_000


def test_memory_that_is_held_shows_in_the_rss() -> None:
    before = measure_memory()
    held = bytearray(b"x" * 64 * 2**20)
    after = measure_memory()

    assert after.rss - before.rss == pytest.approx(len(held), rel=0.1)
    assert (
        after.malloc_in_use is None
        or before.malloc_in_use is None
        or (after.malloc_in_use - before.malloc_in_use >= len(held))
    )

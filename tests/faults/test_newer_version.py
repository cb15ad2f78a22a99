"""A directory that a newer Penstock wrote is left alone."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c

from penstock.errors import NewerFormat
from penstock.storage.wal import checkpoint, segment
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.repair import plan_repair
from penstock.storage.wal.offline.verify import verify
from tests.faults.store import make_history, open_store

NEWER = struct.pack("<H", max(segment.VERSION, checkpoint.VERSION) + 1)


def make_segment_newer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:10] = NEWER
    data[34:38] = struct.pack("<I", crc32c(bytes(data[:34])))
    path.write_bytes(data)


def make_state_newer(path: Path) -> None:
    """A checkpoint or an index."""
    data = bytearray(path.read_bytes())
    data[8:10] = NEWER
    data[10:14] = struct.pack("<I", crc32c(NEWER + bytes(data[14:])))
    path.write_bytes(data)


@pytest.mark.parametrize("pattern", ["0*.log", "*.ckpt", "*.idx"])
async def test_a_newer_version_is_refused_and_nothing_is_changed(
    tmp_path: Path, pattern: str
) -> None:
    # Given a directory with a file of a newer version
    path = tmp_path / "data"
    await make_history(path, closed=False)
    newest = sorted(path.glob(pattern))[-1]
    (make_segment_newer if newest.suffix == ".log" else make_state_newer)(newest)
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    # When it is opened, it is refused
    with pytest.raises(NewerFormat) as error:
        await open_store(path)
    # Then the error says what to do
    assert error.value.code == "newer_format"
    assert newest.name in str(error.value)
    assert "upgrade Penstock" in str(error.value)
    # and neither a look nor a repair takes it for damage
    with pytest.raises(NewerFormat):
        verify(DiskFiles(path))
    with pytest.raises(NewerFormat):
        plan_repair(DiskFiles(path), rng=Random(1))
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before

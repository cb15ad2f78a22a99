"""Every version of the segment format that was ever released stays readable.

A segment of each is kept under ``fixtures``. The newest must also come out the same, byte for byte:
a change to the bytes is a change of the version.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.log import Log
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    VERSION,
    file_name,
    offset_of,
    read_header,
)

FIXTURES = Path(__file__).parent / "fixtures"
RECORDS = [(2, b""), (3, b"a first record"), (255, bytes(range(256))), (4, b"of a second group")]


def write_newest(directory: Path) -> bytes:
    """The records in two groups, closed, without the space that was allocated behind them."""
    files = DiskFiles(directory)
    salts = iter([b"\x01\x02\x03\x04\x05\x06\x07\x08"])
    log = Log.open(files, replay=Replay(files), random_bytes=lambda _: next(salts))
    for kind, payload in RECORDS[:3]:
        log.append(kind, payload)
    log.commit()
    log.append(*RECORDS[3])
    log.close()
    replay = Replay(files)
    for _ in replay:
        pass
    assert replay.end is not None
    return files.read_at(file_name(1), 0, offset_of(replay.end))


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_segment_of_every_version_is_read(tmp_path: Path, version: int) -> None:
    (tmp_path / file_name(1)).write_bytes((FIXTURES / f"version-{version}.log").read_bytes())
    files = DiskFiles(tmp_path)
    replay = Replay(files)
    assert [(kind, bytes(payload)) for _, kind, payload in replay] == RECORDS
    assert replay.closed
    header = read_header(files.read_at(file_name(1), 0, HEADER_BYTES), number=1)
    assert header.version == version


def test_the_bytes_of_the_newest_version_do_not_change(tmp_path: Path) -> None:
    assert write_newest(tmp_path) == (FIXTURES / f"version-{VERSION}.log").read_bytes()

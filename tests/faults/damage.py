"""Ways to damage a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.storage.wal import record
from penstock.storage.wal.segment import HEADER_BYTES


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def record_offsets(path: Path) -> list[tuple[int, int]]:
    """Where the records of a segment begin, and their kinds; sync marks are left out."""
    scan = record.Scan(memoryview(path.read_bytes()), HEADER_BYTES)
    return [(offset, kind) for offset, kind, _ in scan if kind != record.MARK]


@contextmanager
def copy_of(directory: Path) -> Iterator[Path]:
    """A copy to be damaged, gone afterwards."""
    copy = directory.with_name(directory.name + "-copy")
    shutil.copytree(directory, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)

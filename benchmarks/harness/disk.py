"""The bare disk: the least that a durable append can cost on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self


class BareDisk:
    """A fresh file, to which blocks are appended and synced one by one.

    Nothing is allocated ahead: this is the loop that anyone would write first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def append(self, block: bytes) -> None:
        """Append `block`; it is on the disk when this returns."""
        written = os.write(self._descriptor, block)
        if written != len(block):
            raise OSError(f"{self._path}: wrote {written} of {len(block)} bytes")
        os.fdatasync(self._descriptor)


def bytes_written() -> int:
    """Bytes that this process has handed to write calls so far.

    The difference over a measurement is what a store really appended, whatever its files are
    allocated ahead or how its records are laid out.
    """
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "wchar":
            return int(value)
    raise OSError("/proc/self/io has no wchar: the bare-disk row needs a Linux kernel")

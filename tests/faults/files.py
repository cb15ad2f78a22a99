"""A real directory whose disk fails when it is told to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from penstock.storage.wal.files import DiskFiles, WritableFile

Fault = Callable[[str], None]
"""Told what is about to be done: write, sync, allocate or rename. Raises to have it fail."""


def failing(error: int, *kinds: str) -> Fault:
    """Have every operation of some kinds fail with an errno."""

    def fault(kind: str) -> None:
        if kind in kinds:
            raise OSError(error, os.strerror(error))

    return fault


FULL_DISK = failing(errno.ENOSPC, "allocate")


def stop_at(number: int) -> Fault:
    """Have the n-th operation and all that follow fail, as if the process had ended there."""
    done = 0

    def fault(kind: str) -> None:
        nonlocal done
        done += 1
        if done >= number:
            raise OSError(errno.EIO, "stopped here")

    return fault


def no_fault(kind: str) -> None:
    return


class FaultyFiles(DiskFiles):
    """Set ``fault`` at any time."""

    fault: Fault = staticmethod(no_fault)

    def create(self, name: str) -> WritableFile:
        return _FaultyFile(self, name, super().create(name))

    def open(self, name: str) -> WritableFile:
        return _FaultyFile(self, name, super().open(name))

    def rename(self, old: str, new: str) -> None:
        self.fault("rename")
        super().rename(old, new)


class _FaultyFile(WritableFile):
    def __init__(self, files: FaultyFiles, name: str, file: WritableFile) -> None:
        self._files = files
        self._name = name
        self._file = file

    def write_at(self, offset: int, buffers: Sequence[bytes], *, sync: bool = False) -> None:
        self._files.fault("write")
        self._file.write_at(offset, buffers)
        if sync:
            self.sync()

    def sync(self) -> None:
        self._files.fault("sync")
        self._file.sync()

    def allocate(self, size: int) -> None:
        # The space that a file has already is its own, however full the disk is.
        if self._name not in self._files.names() or self._files.size(self._name) < size:
            self._files.fault("allocate")
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()

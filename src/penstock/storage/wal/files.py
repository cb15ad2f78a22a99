"""The file system as the log sees it: one directory, flat names, blocking calls.

This is the only module of the log that touches the operating system, so tests can put a simulated
disk in its place. Nothing here knows what the files mean. Failures are plain ``OSError``; the log
decides which of them is a full disk and which is fatal.

What survives a power loss:

* bytes written to a file, only once ``WritableFile.sync`` has returned;
* creating, renaming or removing a file, only once ``Files.sync_directory`` has returned.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from penstock.errors import DirectoryLocked

__all__ = ["DiskFiles", "Files", "WritableFile"]

LOCK_NAME = "LOCK"
TEMPORARY_SUFFIX = ".tmp"

# IOV_MAX: the kernel takes at most this many buffers in one call.
_MAX_BUFFERS = 1024

# Descriptors kept open for reading, which saves an open() and a path walk per cold read. 64
# segments of 64 MiB are 4 GiB of hot log, and 64 is far below any descriptor limit.
_READERS_KEPT = 64

_CANNOT_READ_NOWAIT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class WritableFile(Protocol):
    """A file open for writing. One thread uses it at a time."""

    def write_at(self, offset: int, buffers: Sequence[bytes], *, sync: bool = False) -> None:
        """Write the buffers back to back from ``offset`` on, or raise ``OSError``.

        With ``sync``, sync the file as well. After an error it may hold any part of them.
        """
        ...

    def sync(self) -> None:
        """Make everything written to this file durable."""
        ...

    def allocate(self, size: int) -> None:
        """Allocate disk space for the first ``size`` bytes; what was never written reads as zeros.

        The file becomes at least that long. Idempotent.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def close(self) -> None:
        """Close the file, without syncing it. Idempotent."""
        ...


class Files(Protocol):
    """One directory. Reads may come from any thread; changes of a file come from one at a time.

    Two threads may change different files, and sync the directory, at once.
    """

    def names(self) -> list[str]:
        """The names of all the files, sorted."""
        ...

    def size(self, name: str) -> int: ...

    def read(self, name: str) -> bytes:
        """The whole file."""
        ...

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        """Read ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def read_at_nowait(self, name: str, offset: int, size: int) -> bytes | bytearray | None:
        """Like ``read_at``, but None if it would have to wait for the disk.

        On a system without such reads it is always None, and the caller must use a thread.
        """
        ...

    def create(self, name: str) -> WritableFile:
        """Create an empty file. Raises ``FileExistsError`` if there is one of that name."""
        ...

    def open(self, name: str) -> WritableFile:
        """Open an existing file for writing."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing one that had the new name."""
        ...

    def remove(self, name: str) -> None: ...

    def sync_directory(self) -> None:
        """Make every creation, renaming and removal durable."""
        ...

    def lock(self) -> None:
        """Lock the directory until ``unlock`` or the process ends. Raises ``DirectoryLocked``."""
        ...

    def unlock(self) -> None: ...

    def replace(self, name: str, data: bytes) -> None:
        """Replace the content of ``name`` with ``data``, durably.

        After a crash at any point, the file is either as it was before or has all of ``data``. If
        it cannot be written, no space is left occupied.
        """
        temporary = name + TEMPORARY_SUFFIX
        with suppress(FileNotFoundError):  # left by a crash in an earlier attempt
            self.remove(temporary)
        file = self.create(temporary)
        try:
            file.write_at(0, [data], sync=True)
        except OSError:
            # On a full disk, the parts of many attempts would take what an attempt needs.
            with suppress(OSError):
                self.remove(temporary)
            raise
        finally:
            file.close()
        self.rename(temporary, name)
        self.sync_directory()


class DiskFiles(Files):
    """A real directory. If it does not exist it is created, readable by its owner alone.

    ``observe_sync`` is called with the seconds that each sync of a file took, in whatever thread
    waited for it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        observe_sync: Callable[[float], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._observe_sync = observe_sync
        missing = [p for p in (self.path, *self.path.parents) if not p.exists()]
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for created in missing:  # or a power loss could take the whole directory
            _sync_path(created.parent)
        self._lock_descriptor: int | None = None
        self._readers: OrderedDict[str, _Descriptor] = OrderedDict()
        self._readers_lock = Lock()
        self._reads_nowait = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")

    def names(self) -> list[str]:
        with os.scandir(self.path) as entries:
            return sorted(e.name for e in entries if e.name != LOCK_NAME and e.is_file())

    def size(self, name: str) -> int:
        return os.stat(self._path(name)).st_size

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        reader = self._reader(name)
        data = os.pread(reader.number, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # one call reads 2 GiB at most, and a signal may cut it short
        missing = size - len(data)
        while missing:
            part = os.pread(reader.number, missing, offset + size - missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def read_at_nowait(self, name: str, offset: int, size: int) -> bytearray | None:
        if not self._reads_nowait:
            return None
        reader = self._reader(name)
        buffer = bytearray(size)
        try:
            count = os.preadv(reader.number, [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as exc:
            if exc.errno not in _CANNOT_READ_NOWAIT:
                raise
            self._reads_nowait = False
            return None
        # A short read is the end of the file, or of what is cached: leave it to read_at.
        return buffer if count == size else None

    def create(self, name: str) -> WritableFile:
        descriptor = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        return _DiskFile(descriptor, self._observe_sync)

    def open(self, name: str) -> WritableFile:
        return _DiskFile(os.open(self._path(name), os.O_RDWR), self._observe_sync)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))
        self._forget(old, new)

    def remove(self, name: str) -> None:
        os.unlink(self._path(name))
        self._forget(name)

    def sync_directory(self) -> None:
        _sync_path(self.path)

    def lock(self) -> None:
        descriptor = os.open(self._path(LOCK_NAME), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as exc:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DirectoryLocked(
                f"{self.path} is in use by process {owner}: stop that process, or choose another "
                "data directory"
            ) from exc
        except BaseException:
            os.close(descriptor)
            raise
        self._lock_descriptor = descriptor

    def unlock(self) -> None:
        """Release the lock, and close the descriptors kept for reading.

        The lock file stays: if it were removed, two processes could each lock one of their own.
        """
        with self._readers_lock:
            self._readers.clear()
        if self._lock_descriptor is not None:
            os.ftruncate(self._lock_descriptor, 0)
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def _path(self, name: str) -> Path:
        return self.path / name

    def _reader(self, name: str) -> _Descriptor:
        with self._readers_lock:
            reader = self._readers.get(name)
            if reader is not None:
                self._readers.move_to_end(name)
                return reader
            reader = _Descriptor(os.open(self._path(name), os.O_RDONLY))
            self._readers[name] = reader
            if len(self._readers) > _READERS_KEPT:
                self._readers.popitem(last=False)
            return reader

    def _forget(self, *names: str) -> None:
        with self._readers_lock:
            for name in names:
                self._readers.pop(name, None)


class _Descriptor:
    """Closed with its last reference, so never during a read by another thread."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _DiskFile(WritableFile):
    def __init__(self, descriptor: int, observe_sync: Callable[[float], None] | None) -> None:
        self._descriptor = descriptor
        self._observe_sync = observe_sync

    def write_at(self, offset: int, buffers: Sequence[bytes], *, sync: bool = False) -> None:
        for start in range(0, len(buffers), _MAX_BUFFERS):
            batch = buffers[start : start + _MAX_BUFFERS]
            size = sum(map(len, batch))
            written = os.pwritev(self._descriptor, batch, offset)
            if written != size:
                _write_rest(self._descriptor, offset, batch, written)
            offset += size
        if sync:
            # Not the flag RWF_DSYNC, though it would save a call: some file systems (FUSE) accept
            # it but leave the sync to a server that may ignore it. All honour fdatasync.
            self.sync()

    def sync(self) -> None:
        began = time.perf_counter()
        _sync_data(self._descriptor)
        if self._observe_sync is not None:
            self._observe_sync(time.perf_counter() - began)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size)
        elif os.fstat(self._descriptor).st_size < size:
            os.ftruncate(self._descriptor, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _write_rest(descriptor: int, offset: int, buffers: Sequence[bytes], written: int) -> None:
    """Finish a write that the kernel cut short. If the disk is full, the next call says so."""
    rest = memoryview(b"".join(buffers))
    while written < len(rest):
        written += os.pwrite(descriptor, rest[written:], offset + written)


def _sync_data(descriptor: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: its fsync leaves the data in the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

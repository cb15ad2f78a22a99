"""A disk in memory that forgets what was not synced, and fails when it is told to.

It keeps apart what a process sees (the page cache) and what would survive a power loss. ``crash``
draws one of the disks that a power loss could leave; ``kill`` is the death of the process alone.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.errors import DirectoryLocked
from penstock.storage.wal.files import Files, WritableFile

SECTOR_BYTES = 512


class SimulatedCrash(BaseException):
    """The machine stopped here. No ``except Exception`` may mistake it for an error."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One change to the disk, as a fault sees it before it happens."""

    number: int  # counted from 1
    kind: str  # create, write, sync, allocate, truncate, rename, remove, sync_directory
    name: str


Fault = Callable[[Operation], None]
"""Called before every operation; raises what the operation shall fail with."""


def crash_at(number: int) -> Fault:
    """Stop the machine at the n-th operation."""

    def fault(operation: Operation) -> None:
        if operation.number >= number:
            raise SimulatedCrash

    return fault


def fail_with(error: int, *, kind: str, from_nth: int = 1, times: int | None = None) -> Fault:
    """Fail operations of one kind with an errno, from the n-th on, for ever or so many times."""
    seen = 0

    def fault(operation: Operation) -> None:
        nonlocal seen
        if operation.kind == kind:
            seen += 1
            if seen >= from_nth and (times is None or seen < from_nth + times):
                raise OSError(error, os.strerror(error))

    return fault


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change to a file's content that was not synced."""

    kind: str  # write, allocate, truncate
    offset: int  # the size, for allocate and truncate
    data: bytes = b""

    def apply(self, content: bytearray) -> None:
        if self.kind == "truncate":
            del content[self.offset :]
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        if self.kind == "write":
            content[self.offset : self.offset + len(self.data)] = self.data

    def sectors(self) -> list[_Change]:
        """The parts of a write that reach the disk each on its own."""
        parts = []
        start = 0
        while start < len(self.data):
            end = start + SECTOR_BYTES - (self.offset + start) % SECTOR_BYTES
            parts.append(
                _Change(kind="write", offset=self.offset + start, data=self.data[start:end])
            )
            start = end
        return parts


@dataclass(kw_only=True)
class _Inode:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[_Change] = field(default_factory=list)

    def change(self, change: _Change) -> None:
        change.apply(self.cached)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            change.apply(self.durable)
        self.unsynced.clear()

    def lose(self, rng: random.Random) -> None:
        """Settle at random which of the unsynced changes reach the disk; none will any more."""
        for change in self.unsynced:
            for part in _surviving(change, rng):
                part.apply(self.durable)
        self.unsynced.clear()


def _surviving(change: _Change, rng: random.Random) -> list[_Change]:
    fate = rng.choice(["kept", "lost", "prefix", "sectors"])
    if fate == "lost":
        return []
    if fate == "kept" or change.kind != "write":
        return [change]
    sectors = change.sectors()
    if fate == "prefix":
        return sectors[: rng.randint(0, len(sectors))]
    return [sector for sector in sectors if rng.random() < 0.5]


@dataclass(frozen=True, kw_only=True)
class _NameChange:
    kind: str  # create, rename, remove
    name: str
    inode: _Inode | None = None
    new: str = ""

    def apply(self, names: dict[str, _Inode]) -> None:
        if self.kind == "create" and self.inode is not None:
            names[self.name] = self.inode
        elif self.kind == "rename":
            names[self.new] = names.pop(self.name)
        elif self.kind == "remove":
            del names[self.name]


class SimulatedFiles(Files):
    """The whole directory. ``capacity_bytes`` is the size of the disk; ``fault`` may be changed.

    Reads never wait for a lock and never fail; ``read_at_nowait`` finds a random part of them cold.
    """

    def __init__(self, rng: random.Random, *, capacity_bytes: int | None = None) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.fault: Fault | None = None
        self.operations = 0
        self.is_down = False
        self._is_locked = False
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._unsynced_names: list[_NameChange] = []

    # -- faults ------------------------------------------------------------------------------------

    def crash(self) -> SimulatedFiles:
        """A disk that a power loss at this moment could leave.

        Of the unsynced name changes, some first ones are kept. Every unsynced write is kept, lost
        or torn at sectors, each for itself: so they may have been reordered.
        """
        names = dict(self._durable_names)
        kept = self.rng.randint(0, len(self._unsynced_names))
        for change in self._unsynced_names[:kept]:
            change.apply(names)
        survivor = SimulatedFiles(self.rng, capacity_bytes=self.capacity_bytes)
        for name, inode in sorted(names.items()):
            copy = _Inode(durable=bytearray(inode.durable), unsynced=list(inode.unsynced))
            copy.lose(self.rng)
            copy.cached = bytearray(copy.durable)
            survivor._names[name] = survivor._durable_names[name] = copy
        self.is_down = True
        return survivor

    def kill(self) -> SimulatedFiles:
        """The same disk after the process died: all it wrote is there, and no safer than before."""
        survivor = SimulatedFiles(self.rng, capacity_bytes=self.capacity_bytes)
        survivor._names = self._names
        survivor._durable_names = self._durable_names
        survivor._unsynced_names = self._unsynced_names
        self.is_down = True
        return survivor

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """Damage one bit, in the cache and on the disk."""
        inode = self._inode(name)
        inode.sync()
        for content in (inode.cached, inode.durable):
            content[offset] ^= 1 << bit

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.cached) for inode in self._names.values())

    def begin(self, kind: str, name: str) -> None:
        """Count an operation, and let it fail if it shall."""
        if self.is_down:
            raise SimulatedCrash
        self.operations += 1
        if self.fault is None:
            return
        try:
            self.fault(Operation(number=self.operations, kind=kind, name=name))
        except SimulatedCrash:
            self.is_down = True
            raise

    def check_space(self, growth: int) -> None:
        if self.capacity_bytes is None or growth <= 0:
            return
        if self.used_bytes + growth > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # -- Files -------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self._names)

    def size(self, name: str) -> int:
        return len(self._inode(name).cached)

    def read(self, name: str) -> bytes:
        return bytes(self._inode(name).cached)

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        return bytes(self._inode(name).cached[offset : offset + size])

    def read_at_nowait(self, name: str, offset: int, size: int) -> bytes | None:
        data = self.read_at(name, offset, size)
        return None if len(data) < size or self.rng.random() < 0.25 else data

    def create(self, name: str) -> WritableFile:
        if name in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.begin("create", name)
        inode = _Inode()
        self._change_names(_NameChange(kind="create", name=name, inode=inode))
        return _SimulatedFile(self, name, inode)

    def open(self, name: str) -> WritableFile:
        return _SimulatedFile(self, name, self._inode(name))

    def rename(self, old: str, new: str) -> None:
        self._inode(old)
        self.begin("rename", old)
        self._change_names(_NameChange(kind="rename", name=old, new=new))

    def remove(self, name: str) -> None:
        self._inode(name)
        self.begin("remove", name)
        self._change_names(_NameChange(kind="remove", name=name))

    def sync_directory(self) -> None:
        self.begin("sync_directory", "")
        self._durable_names.clear()
        self._durable_names.update(self._names)
        self._unsynced_names.clear()

    def lock(self) -> None:
        if self._is_locked:
            raise DirectoryLocked("the simulated directory is in use: unlock it first")
        self._is_locked = True

    def unlock(self) -> None:
        self._is_locked = False

    def _inode(self, name: str) -> _Inode:
        try:
            return self._names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def _change_names(self, change: _NameChange) -> None:
        change.apply(self._names)
        self._unsynced_names.append(change)


class _SimulatedFile(WritableFile):
    def __init__(self, files: SimulatedFiles, name: str, inode: _Inode) -> None:
        self._files = files
        self._name = name
        self._inode = inode

    def write_at(self, offset: int, buffers: Sequence[bytes], *, sync: bool = False) -> None:
        data = b"".join(buffers)
        try:
            self._files.begin("write", self._name)
        except (SimulatedCrash, OSError):
            part = data[: self._files.rng.randint(0, len(data))]
            self._inode.change(_Change(kind="write", offset=offset, data=part))
            raise
        self._files.check_space(offset + len(data) - len(self._inode.cached))
        self._inode.change(_Change(kind="write", offset=offset, data=data))
        if sync:
            self.sync()

    def sync(self) -> None:
        try:
            self._files.begin("sync", self._name)
        except OSError:
            # As on Linux: the pages count as clean from here on, though they may never have been
            # written. Another sync succeeds, and does not bring them back.
            self._inode.lose(self._files.rng)
            raise
        self._inode.sync()

    def allocate(self, size: int) -> None:
        self._files.begin("allocate", self._name)
        self._files.check_space(size - len(self._inode.cached))
        if size > len(self._inode.cached):
            self._inode.change(_Change(kind="allocate", offset=size))

    def truncate(self, size: int) -> None:
        self._files.begin("truncate", self._name)
        self._inode.change(_Change(kind="truncate", offset=size))

    def close(self) -> None:
        pass

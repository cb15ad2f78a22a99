"""`Shared` for a server that has its data to itself: documents are files in its directory."""

from __future__ import annotations

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path

from penstock.clock import Clock
from penstock.core.limits import NANOSECONDS
from penstock.errors import CorruptLog, StorageError
from penstock.storage.shared import Document, Limit

__all__ = ["LocalShared"]

_KEY_SUFFIX = ".key"


class LocalShared:
    """See `Shared`. Without a directory, everything is in memory."""

    def __init__(self, directory: Path | None, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._contents: dict[str, bytes] = {}
        self._versions: dict[str, str] = {}
        self._numbers = count(1)
        self._turn = asyncio.Lock()
        self._window = 0
        self._counts: Counter[str] = Counter()

    def place(self, name: str) -> str:
        return name if self._directory is None else str(self._directory / name)

    async def get(self, name: str, known: str | None = None) -> Document | None:
        async with self._turn:
            if known is not None and self._versions.get(name) == known:
                return None
            content = await asyncio.to_thread(self._read, name)
            if content is None:
                return Document(b"", self._versions.setdefault(name, ""))
            return Document(content, self._versions.get(name) or self._renew(name))

    async def put(self, name: str, content: bytes, version: str) -> str | None:
        # Shielded, so that a write that has begun completes before the next one.
        return await asyncio.shield(self._put(name, content, version))

    async def _put(self, name: str, content: bytes, version: str) -> str | None:
        async with self._turn:
            if self._versions.get(name, "") != version:
                return None
            await asyncio.to_thread(self._write, name, content)
            return self._renew(name)

    def follow(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        """Nothing to do: nobody else changes a document."""

    async def over_limit(self, limits: Sequence[Limit]) -> Limit | None:
        window = self._clock.now_ns() // NANOSECONDS
        if window != self._window:
            self._window, self._counts = window, Counter()
        for limit in limits:
            self._counts[limit.name] += 1
            if self._counts[limit.name] > limit.per_second:
                return limit
        return None

    def _renew(self, name: str) -> str:
        version = self._versions[name] = str(next(self._numbers))
        return version

    def _read(self, name: str) -> bytes | None:
        if self._directory is None:
            return self._contents.get(name)
        path = self._directory / name
        try:
            return _read_key(path) if path.suffix == _KEY_SUFFIX else path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StorageError(f"{path} cannot be used: {exc.strerror}") from exc

    def _write(self, name: str, content: bytes) -> None:
        if self._directory is None:
            self._contents[name] = content
            return
        path = self._directory / name
        try:
            _write_private(path, content)
        except OSError as exc:
            raise StorageError(f"{path} cannot be written: {exc.strerror}") from exc


def _read_key(path: Path) -> bytes:
    """Raises unless it is a plain file that only its owner can access."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise CorruptLog(f"{path} is not a plain file: remove it, and a new key is made")
        if stat.S_IMODE(mode) & 0o077:
            raise StorageError(
                f"{path} is a key, and its mode {stat.S_IMODE(mode):o} lets others at it: make it "
                "600; or, if somebody may have seen it, remove it, and a new key is made with "
                "which all tokens become void"
            )
        return file.read()


def _write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically and durably, readable by the owner alone.

    Raises `OSError`; the former content is then still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

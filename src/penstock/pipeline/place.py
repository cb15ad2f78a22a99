"""A place in a lake: a directory or a file, on a disk or in an object store.

A lake relies on these guarantees, which both kinds give:

- `replace`, `create` and `move_to` are atomic: a file appears completely or not at all, so each can
  be repeated after a crash. On a disk that is a rename; in an object store, a single put or a copy
  within the store.
- `create` succeeds for one caller only. In an object store the put is conditional
  (``If-None-Match: *``); on a disk nobody else tries, see `Lake.lock`.
- What a call has done survives a power loss once it returns: on a disk it is synced.
- A listing has every file that existed before it started and is not removed meanwhile.

No directory is ever moved, and no listing is relied on to be a snapshot.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pyarrow import fs

from penstock.errors import InvalidArgument, MissingExtra

__all__ = ["Place", "place_of", "sync_file"]

_STORES = ("s3", "s3a")
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict")


def place_of(location: str | Path | Place) -> Place:
    """From a directory, ``file://…`` or ``s3://bucket/…``. Raises `InvalidArgument` for others."""
    if isinstance(location, Place):
        return location
    scheme, separator, rest = str(location).partition("://")
    is_local = not separator or scheme == "file"
    directory = rest if separator else str(location)
    if is_local and directory:
        return Place(fs.LocalFileSystem(), str(Path(directory).absolute()), is_local=True)
    if scheme not in _STORES:
        # Nothing at all, as of a variable that is not set, is not the current directory.
        raise InvalidArgument(f"{str(location)!r} is neither a directory nor s3://bucket/path")
    if not rest.strip("/"):
        raise InvalidArgument(f"{str(location)!r} names no bucket: use s3://bucket/path")
    store, path = fs.FileSystem.from_uri(f"s3://{rest.strip('/')}")
    return Place(store, path, is_local=False)


class Place:
    """Join paths with ``/``. `size` is set on what `files` returns."""

    def __init__(self, store: fs.FileSystem, path: str, *, is_local: bool, size: int = 0) -> None:
        self._store = store
        self.path = path
        self.is_local = is_local
        self.size = size

    def __truediv__(self, further: str) -> Place:
        return Place(self._store, f"{self.path}/{further}", is_local=self.is_local)

    def __str__(self) -> str:
        """The path or URL for Spark."""
        return self.path if self.is_local else f"s3a://{self.path}"

    def __fspath__(self) -> str:
        if not self.is_local:
            raise TypeError(f"{self} is not on a disk")
        return self.path

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> Place:
        return Place(self._store, str(PurePosixPath(self.path).parent), is_local=self.is_local)

    def below(self, base: Place) -> str:
        """The path relative to ``base``."""
        return str(PurePosixPath(self.path).relative_to(base.path))

    def exists(self) -> bool:
        return bool(self._store.get_file_info(self.path).type != fs.FileType.NotFound)

    def files(self, suffix: str = "") -> list[Place]:
        """Every file below, sorted by path; empty if the place does not exist."""
        return [
            Place(self._store, info.path, is_local=self.is_local, size=info.size)
            for info in self._list(recursive=True)
            if info.is_file and info.path.endswith(suffix)
        ]

    def children(self) -> list[Place]:
        return [self / info.base_name for info in self._list(recursive=False)]

    def _list(self, *, recursive: bool) -> list[fs.FileInfo]:
        chosen = fs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        found: list[fs.FileInfo] = self._store.get_file_info(chosen)
        return sorted(found, key=lambda info: str(info.path))

    def open(self) -> IO[bytes]:
        """Open for reading, with random access."""
        return self._store.open_input_file(self.path)  # type: ignore[no-any-return]

    def read(self) -> bytes:
        with self.open() as file:
            return file.read()

    def write(self) -> IO[bytes]:
        """Open for writing, from the beginning. Durable only once closed and synced."""
        self._make_room()
        return self._store.open_output_stream(self.path)  # type: ignore[no-any-return]

    def replace(self, data: bytes) -> None:
        """Replace the content atomically."""
        if not self.is_local:
            with self.write() as file:
                file.write(data)
            return
        fresh = self.parent / f".{self.name}.new"
        with fresh.write() as file:
            file.write(data)
        fresh.sync()
        fresh.move_to(self)
        self.parent.sync()

    def create(self, data: bytes) -> bool:
        """Create the file. False if one with other content exists; that one stays as it is."""
        if self.is_local:
            if self.exists():
                return False
            self.replace(data)
            return True
        bucket, _, key = self.path.partition("/")
        # If the answer got lost, the client retries, and finds our own file in the way.
        return _put_new(bucket, key, data) or self.read() == data

    def move_to(self, target: Place) -> None:
        """Move the file. In an object store it is copied, and the source is removed later."""
        target._make_room()
        if self.is_local:
            self._store.move(self.path, target.path)
        else:
            self._store.copy_file(self.path, target.path)

    def remove(self) -> None:
        """Remove it with everything below; does nothing if it does not exist."""
        kind = self._store.get_file_info(self.path).type
        if kind == fs.FileType.Directory:
            self._store.delete_dir(self.path)
        elif kind != fs.FileType.NotFound:
            with suppress(FileNotFoundError):
                self._store.delete_file(self.path)

    def sync(self) -> None:
        """Sync a file's content, or the names in a directory, to the disk."""
        if self.is_local:
            sync_file(Path(self.path))

    def _make_room(self) -> None:
        if self.is_local:
            self._store.create_dir(self.parent.path)


def sync_file(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _put_new(bucket: str, key: str, data: bytes) -> bool:
    """A conditional put with boto3, since Arrow has none. False if the key exists."""
    try:
        # An extra.
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("a lake on S3 needs boto3: pip install 'penstock[s3]'") from None
    try:
        _client().put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    except ClientError as exc:
        if exc.response["Error"]["Code"] in _TAKEN:
            return False
        raise OSError(f"s3://{bucket}/{key} could not be written: {exc}") from exc
    except BotoCoreError as exc:
        raise OSError(f"s3://{bucket}/{key} could not be written: {exc}") from exc
    return True


@functools.cache
def _client() -> Any:
    import boto3  # noqa: PLC0415

    return boto3.client("s3")

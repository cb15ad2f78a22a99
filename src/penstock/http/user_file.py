"""Where the users are kept: ``users.json`` in the data directory.

It is small, read at start, and replaced as a whole by every change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from penstock.errors import CorruptLog, NewerFormat, StorageError
from penstock.http.private_file import write_private
from penstock.http.user import Role, User, new_id, new_stamp

__all__ = ["UserFile", "UserRecords"]

FILE_NAME = "users.json"
# Raise it when an older release could misread the file, and let `read` understand both.
# 1 had neither ids nor stamps, and no users of the settings.
VERSION = 2


class UserRecords(msgspec.Struct, frozen=True, kw_only=True):
    """`stored` are those that were added; `configured` are the two of the settings."""

    stored: tuple[User, ...] = ()
    configured: tuple[User, ...] = ()


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str = msgspec.field(default_factory=new_id)
    username: str
    password_hash: str
    stamp: str = msgspec.field(default_factory=new_stamp)
    role: Literal["USER", "ADMIN"]
    requests_per_second: int = 0
    name: str | None = None
    after: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    users: tuple[_Entry, ...]
    configured: tuple[_Entry, ...] = ()


class UserFile:
    """Without a path, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> UserRecords:
        """Raises `CorruptLog`, `NewerFormat` or `StorageError`."""
        path = self._path
        if path is None:
            return UserRecords()
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return UserRecords()
        except OSError as exc:
            raise StorageError(f"{path} cannot be read: {exc.strerror}") from exc
        try:
            file = msgspec.json.decode(content, type=_File)
        except msgspec.DecodeError as exc:
            raise CorruptLog(
                f"{path} is damaged ({exc}): restore it, or remove it and add the users again",
                file=str(path),
            ) from exc
        if file.version > VERSION:
            raise NewerFormat(f"{path} has version {file.version}, known is {VERSION}: upgrade")
        return UserRecords(
            stored=tuple(map(_user, file.users)), configured=tuple(map(_user, file.configured))
        )

    def write(self, records: UserRecords) -> None:
        """On the disk when it returns. Raises `StorageError`; then the next start finds either."""
        path = self._path
        if path is None:
            return
        file = _File(
            version=VERSION,
            users=tuple(map(_entry, sorted(records.stored, key=lambda user: user.username))),
            configured=tuple(map(_entry, records.configured)),
        )
        try:
            write_private(path, msgspec.json.format(msgspec.json.encode(file)))
        except OSError as exc:
            raise StorageError(f"{path} cannot be written: {exc.strerror}") from exc


def _user(entry: _Entry) -> User:
    return User(
        id=entry.id,
        username=entry.username,
        password_hash=entry.password_hash,
        stamp=entry.stamp,
        role=Role[entry.role],
        requests_per_second=entry.requests_per_second,
        name=entry.name,
        after=entry.after,
    )


def _entry(user: User) -> _Entry:
    return _Entry(
        id=user.id,
        username=user.username,
        password_hash=user.password_hash,
        stamp=user.stamp,
        role="ADMIN" if user.role is Role.ADMIN else "USER",
        requests_per_second=user.requests_per_second,
        name=user.name,
        after=user.after,
    )

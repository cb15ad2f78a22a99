"""The users: the two that the settings name, and the subscribers, who are kept in a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from penstock.core.limits import check_name
from penstock.errors import CorruptLog, InvalidArgument, NewerFormat, NotFound, StorageError
from penstock.http.auth import Role, User, hash_password
from penstock.settings import Settings

__all__ = ["Users", "open_users"]

FILE_NAME = "users.json"
# Raise it when an older release could misread the file, and let `_read` understand both.
VERSION = 1


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    username: str
    password_hash: str
    role: Literal["USER", "ADMIN"]
    requests_per_second: int = 0


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    users: list[_Entry]


class Users:
    """Looked up by name. A change is on the disk before it is answered, or has not happened."""

    def __init__(self, fixed: Mapping[str, User], path: Path | None) -> None:
        """``fixed`` are those of the settings. Without a path, subscribers live in memory only.

        Raises `CorruptLog`, `NewerFormat` or `StorageError` when the file cannot be read.
        """
        self._fixed = dict(fixed)
        self._path = path
        self._subscribers = _read(path) if path is not None else {}
        self._changing = asyncio.Lock()

    def get(self, name: str) -> User | None:
        return self._fixed.get(name) or self._subscribers.get(name)

    def subscribers(self) -> dict[str, User]:
        """By name, sorted."""
        return dict(sorted(self._subscribers.items()))

    async def add(self, name: str, password: str, role: Role, requests_per_second: int) -> User:
        """Raises `InvalidName`, or `InvalidArgument` when the name is taken."""
        check_name(name, "user")
        self._check_free(name)
        hashed = await asyncio.to_thread(hash_password, password)
        user = User(hashed, role, requests_per_second)
        async with self._changing:
            self._check_free(name)  # somebody may have been faster
            await self._replace(self._subscribers | {name: user})
        return user

    async def remove(self, name: str) -> None:
        """Raises `NotFound`, or `InvalidArgument` for a user of the settings."""
        async with self._changing:
            if name in self._fixed:
                raise InvalidArgument(f"{name!r} comes from the settings: change it there")
            if name not in self._subscribers:
                raise NotFound(f"there is no subscriber {name!r}")
            left = {other: user for other, user in self._subscribers.items() if other != name}
            await self._replace(left)

    def _check_free(self, name: str) -> None:
        if self.get(name) is not None:
            raise InvalidArgument(f"there is a user {name!r} already: choose another name")

    async def _replace(self, subscribers: dict[str, User]) -> None:
        if self._path is not None:
            try:
                await asyncio.to_thread(_write, self._path, _encode(subscribers))
            except OSError as exc:
                raise StorageError(f"{self._path} cannot be written: {exc.strerror}") from exc
        self._subscribers = subscribers


def open_users(settings: Settings) -> Users:
    """The users of a server; subscribers are in its data directory, if it has one."""
    fixed = {
        settings.user_username: User(hash_password(settings.user_password), Role.USER),
        settings.admin_username: User(hash_password(settings.admin_password), Role.ADMIN),
    }
    directory = settings.directory
    return Users(fixed, directory / FILE_NAME if directory is not None else None)


def _read(path: Path) -> dict[str, User]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise StorageError(f"{path} cannot be read: {exc.strerror}") from exc
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError as exc:
        raise CorruptLog(
            f"{path} is damaged ({exc}): restore it, or remove it and add the subscribers again",
            file=str(path),
        ) from exc
    if file.version > VERSION:
        raise NewerFormat(f"{path} has version {file.version}, known is {VERSION}: upgrade")
    return {
        entry.username: User(
            entry.password_hash.encode(), Role[entry.role], entry.requests_per_second
        )
        for entry in file.users
    }


def _encode(subscribers: Mapping[str, User]) -> bytes:
    entries = [
        _Entry(
            username=name,
            password_hash=user.password_hash.decode(),
            role="ADMIN" if user.role is Role.ADMIN else "USER",
            requests_per_second=user.requests_per_second,
        )
        for name, user in sorted(subscribers.items())
    ]
    return msgspec.json.format(msgspec.json.encode(_File(version=VERSION, users=entries)))


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing, readable by the owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".json.new")
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

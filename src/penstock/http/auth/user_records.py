"""How users are stored: as one small document, ``users.json``, which is replaced as a whole."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.errors import CorruptLog, NewerFormat
from penstock.http.auth.user import Role, User, new_id, new_stamp

__all__ = ["NAME", "UserRecords", "decode_users", "encode_users"]

NAME = "users.json"
# Raise it when an older release could misread the document, and let `decode_users` read both.
# Version 1 had neither ids nor stamps, and no users of the settings.
VERSION = 2


class UserRecords(msgspec.Struct, frozen=True, kw_only=True):
    """`stored` are the users that were added, `configured` the two of the settings."""

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


def decode_users(content: bytes, place: str) -> UserRecords:
    """Raises `CorruptLog` or `NewerFormat`."""
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError as exc:
        raise CorruptLog(
            f"{place} is damaged ({exc}): restore it, or remove it and add the users again",
            file=place,
        ) from exc
    if file.version > VERSION:
        raise NewerFormat(f"{place} has version {file.version}, known is {VERSION}: upgrade")
    return UserRecords(
        stored=tuple(map(_user, file.users)), configured=tuple(map(_user, file.configured))
    )


def encode_users(records: UserRecords) -> bytes:
    file = _File(
        version=VERSION,
        users=tuple(map(_entry, sorted(records.stored, key=lambda user: user.username))),
        configured=tuple(map(_entry, records.configured)),
    )
    return msgspec.json.format(msgspec.json.encode(file))


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

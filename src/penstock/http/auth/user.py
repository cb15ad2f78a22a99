"""A user, whether the settings name it, an admin added it, or it registered itself."""

from __future__ import annotations

import secrets
from enum import IntEnum

import msgspec

__all__ = ["Role", "User", "canonical", "new_id", "new_stamp"]


class Role(IntEnum):
    """An admin may do everything that a user may."""

    USER = 1
    ADMIN = 2


class User(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a user.

    - `id` never changes, and is never used again.
    - `username` is what the user logs in with: a name, or an e-mail address. It is unique.
    - `stamp` changes with every password. Whatever was granted under another stamp is void.
    - `requests_per_second`: 0 or less is no limit.
    - `name` is what people call the user, if given.
    - `after` has the ids of the users that must have taken a message before this one gets it.
    """

    id: str
    username: str
    password_hash: str
    stamp: str
    role: Role
    requests_per_second: int = 0
    name: str | None = None
    after: tuple[str, ...] = ()


def canonical(username: str) -> str:
    """The spelling that counts: in an e-mail address, capitals do not matter."""
    return username.casefold() if "@" in username else username


def new_id() -> str:
    """24 hexadecimal digits."""
    return secrets.token_hex(12)


def new_stamp() -> str:
    return secrets.token_hex(16)

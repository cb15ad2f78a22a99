"""One user, whoever made it: the settings, an admin, or the user itself."""

from __future__ import annotations

import secrets
from enum import IntEnum

import msgspec

__all__ = ["Role", "User", "canonical", "new_id", "new_stamp"]


class Role(IntEnum):
    """An admin may do all that a user may."""

    USER = 1
    ADMIN = 2


class User(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a user.

    - `id` never changes and is never given to another.
    - `username` is what it logs in with: a name, or an e-mail address. No two users share one.
    - `stamp` is new with every password. Whatever was granted under another one is void.
    - `requests_per_second` 0 or less is no limit.
    - `name` is what people call it, if it said so.
    - `after` are the ids of the users that must have taken a message before this one gets it.
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
    """The one way to write it that counts: for an e-mail address, capitals do not."""
    return username.casefold() if "@" in username else username


def new_id() -> str:
    """24 hexadecimal digits."""
    return secrets.token_hex(12)


def new_stamp() -> str:
    return secrets.token_hex(16)

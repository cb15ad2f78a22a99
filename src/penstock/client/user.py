"""A user of a server, as an administrator sees it."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["User"]


class User(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`rate_limit` is in requests a second; 0 or less is none."""

    username: str
    role: Literal["USER", "ADMIN"]
    rate_limit: int

"""A filter tried out on messages that are there, before anybody subscribes with it."""

from __future__ import annotations

import msgspec

__all__ = ["FilterTest"]


class FilterTest(msgspec.Struct, frozen=True, kw_only=True):
    """What a filter says of messages: indexes that match, and those it fails for.

    A message that a filter fails for does not match: it looks for a field that is not there, say.
    """

    tested: int
    matched: list[int]
    failed: list[int]

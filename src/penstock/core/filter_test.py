"""A filter tried on existing messages, before anybody subscribes with it."""

from __future__ import annotations

import msgspec

__all__ = ["FilterTest"]


class FilterTest(msgspec.Struct, frozen=True, kw_only=True):
    """The indexes that a filter matches, and those that it fails on.

    A failure, such as a field that is missing, is not a match.
    """

    tested: int
    matched: list[int]
    failed: list[int]

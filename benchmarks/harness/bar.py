"""A bar: the limit that a figure is held to."""

from __future__ import annotations

from typing import Literal

import msgspec

Side = Literal["at_least", "at_most"]

TIMES = "\u00d7"
"""The unit of a ratio to a reference: the multiplication sign."""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A limit and the side of it that is good. A figure equal to the limit meets it."""

    side: Side
    limit: float
    unit: str
    """`TIMES` for a ratio to a reference, otherwise the unit of the figure itself."""

    def holds(self, figure: float) -> bool:
        if self.side == "at_least":
            return figure >= self.limit
        return figure <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.side == "at_least" else "≤"
        return f"{sign} {self.limit:g} {self.unit}"


def at_least(limit: float, unit: str = TIMES) -> Bar:
    return Bar(side="at_least", limit=limit, unit=unit)


def at_most(limit: float, unit: str = TIMES) -> Bar:
    return Bar(side="at_most", limit=limit, unit=unit)

"""The outcome of an ack, nack or extension."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import overload

__all__ = ["AllDone", "Outcome"]


class Outcome(Enum):
    """What became of one target of a batch."""

    DONE = "done"
    ALREADY_SETTLED = "already_settled"
    NOT_LEASED = "not_leased"  # stale: it was delivered again, or its lease ended
    NOT_FOUND = "not_found"


class AllDone(Sequence[Outcome]):
    """`DONE`, so many times: an ack up to an index may settle millions of messages."""

    __slots__ = ("_count",)

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Outcome: ...

    @overload
    def __getitem__(self, at: slice) -> AllDone: ...

    def __getitem__(self, at: int | slice) -> Outcome | AllDone:
        found = range(self._count)[at]
        return Outcome.DONE if isinstance(found, int) else AllDone(len(found))

    def __eq__(self, other: object) -> bool:
        """It equals the list that it stands for."""
        if isinstance(other, AllDone):
            return self._count == other._count
        if not isinstance(other, list):
            return NotImplemented
        return len(other) == self._count and all(one is Outcome.DONE for one in other)

    def __hash__(self) -> int:
        return hash((Outcome.DONE, self._count))

    def __repr__(self) -> str:
        return f"AllDone({self._count})"

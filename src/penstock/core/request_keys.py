"""The answers to publishes with an idempotency key: one entry per request, not per message."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from penstock.core.runs import Run

__all__ = ["PastRequest", "RequestKeys", "runs_in_order"]


class PastRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request's messages as flat runs, in the order of the request.

    `duplicates` maps the positions of messages whose dedup keys were known to the first ones' ids.
    """

    runs: list[int]
    duplicates: dict[int, str] = {}

    @property
    def indexes(self) -> list[int]:
        bounds = self.runs
        return [i for a, b in zip(bounds[::2], bounds[1::2], strict=True) for i in range(a, b)]


class RequestKeys:
    """The keys, in the order of their arrival, in which they are also forgotten."""

    __slots__ = ("_order", "_past")

    def __init__(self) -> None:
        self._past: dict[str, tuple[int, PastRequest]] = {}
        self._order: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._past)

    def get(self, key: str, since_ns: int) -> tuple[int, PastRequest] | None:
        """When the request came and how it was answered, if that was after ``since_ns``."""
        found = self._past.get(key)
        return found if found is not None and found[0] > since_ns else None

    def note(self, key: str, at_ns: int, request: PastRequest) -> None:
        self._past[key] = at_ns, request
        self._order.append((at_ns, key))

    def forget(self, before_ns: int) -> None:
        """Forget the keys that came at that time or earlier."""
        order = self._order
        while order and order[0][0] <= before_ns:
            at_ns, key = order.popleft()
            if self._past.get(key, (0, None))[0] == at_ns:
                del self._past[key]

    def lose(self, first: int, stop: int) -> None:
        """Forget requests with messages that were lost to damage: they must not be answered so."""
        for key, (_, request) in list(self._past.items()):
            if any(first <= index < stop for index in request.indexes):
                del self._past[key]

    def dump(self) -> dict[str, tuple[int, PastRequest]]:
        return self._past

    @classmethod
    def load(cls, dump: dict[str, tuple[int, PastRequest]]) -> RequestKeys:
        keys = cls()
        keys._past = dump
        keys._order = deque(sorted((at_ns, key) for key, (at_ns, _) in dump.items()))
        return keys


def runs_in_order(indexes: Sequence[int]) -> list[int]:
    """Flat runs of indexes in any order, keeping that order."""
    if isinstance(indexes, range):
        return [indexes.start, indexes.stop]
    runs: list[Run] = []
    for index in indexes:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return [bound for run in runs for bound in run]

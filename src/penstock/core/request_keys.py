"""The answers to publishes with an idempotency key: one for a request, not for each message."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.core.recent_keys import RecentKeys
from penstock.core.runs import Run

__all__ = ["PastRequest", "RequestKeys", "runs_in_order"]


class PastRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request's messages as flat runs, in the order of the request.

    `duplicates` maps the positions of messages whose dedup keys were known to the first ones' ids.
    """

    runs: tuple[int, ...]
    duplicates: dict[int, str] = {}

    @property
    def indexes(self) -> list[int]:
        bounds = self.runs
        return [i for a, b in zip(bounds[::2], bounds[1::2], strict=True) for i in range(a, b)]

    @property
    def is_plain(self) -> bool:
        """Whether there is no more to it than one run."""
        return len(self.runs) == 2 and not self.duplicates


class RequestKeys:
    """The keys of requests. Nearly all are plain: of the `others`, there is more to remember."""

    __slots__ = ("others", "recent")

    def __init__(
        self, recent: RecentKeys | None = None, others: dict[str, PastRequest] | None = None
    ) -> None:
        self.recent = RecentKeys() if recent is None else recent
        self.others = {} if others is None else others

    def __len__(self) -> int:
        return len(self.recent)

    def get(self, key: str, since_ns: int) -> tuple[int, PastRequest] | None:
        """When the request came and how it was answered, if that was after ``since_ns``."""
        found = self.recent.get(key)
        if found is None or found.at_ns <= since_ns:
            return None
        return found.at_ns, self.others.get(key) or PastRequest((found.start, found.stop))

    def note(self, key: str, at_ns: int, request: PastRequest) -> None:
        self.recent.note(key, at_ns, min(request.runs), max(request.runs))
        if request.is_plain:
            self.others.pop(key, None)
        else:
            self.others[key] = request

    def forget(self, before_ns: int) -> None:
        """Forget the keys that came at that time or earlier."""
        for key in self.recent.forget(before_ns):
            self.others.pop(key, None)

    def lose(self, first: int, stop: int) -> None:
        """Forget requests with messages that were lost to damage: they must not be answered so."""
        for key in self.recent.within(first, stop):
            other = self.others.get(key)
            if other is None or any(first <= index < stop for index in other.indexes):
                self.recent.drop(key)
                self.others.pop(key, None)


def runs_in_order(indexes: Sequence[int]) -> tuple[int, ...]:
    """Flat runs of indexes in any order, keeping that order."""
    if isinstance(indexes, range):
        return indexes.start, indexes.stop
    runs: list[Run] = []
    for index in indexes:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return tuple(bound for run in runs for bound in run)

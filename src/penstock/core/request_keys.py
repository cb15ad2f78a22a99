"""The answers to publishes with an idempotency key: one entry per request, not per message."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from penstock.core.runs import Run

__all__ = ["NO_DUPLICATES", "PastRequest", "RequestKeys", "runs_in_order"]

NO_DUPLICATES: dict[int, str] = {}  # one for all


# There may be hundreds of thousands: the garbage collector is to have nothing to do with them.
class PastRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request's messages as flat runs, in the order of the request.

    `duplicates` maps the positions of messages whose dedup keys were known to the first ones' ids.
    """

    runs: tuple[int, ...]
    duplicates: dict[int, str] = {}

    @property
    def indexes(self) -> list[int]:
        bounds = self.runs
        return [i for a, b in zip(bounds[::2], bounds[1::2], strict=True) for i in range(a, b)]


class RequestKeys:
    """The keys, in the order of their arrival, in which they are also forgotten."""

    __slots__ = ("_past",)

    def __init__(self) -> None:
        self._past: OrderedDict[str, tuple[int, PastRequest]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._past)

    def get(self, key: str, since_ns: int) -> tuple[int, PastRequest] | None:
        """When the request came and how it was answered, if that was after ``since_ns``."""
        found = self._past.get(key)
        return found if found is not None and found[0] > since_ns else None

    def note(self, key: str, at_ns: int, request: PastRequest) -> None:
        self._past[key] = at_ns, request
        self._past.move_to_end(key)

    def forget(self, before_ns: int) -> None:
        """Forget the keys that came at that time or earlier."""
        past = self._past
        while past:
            key = next(iter(past))
            if past[key][0] > before_ns:
                break
            del past[key]

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
        keys._past.update(sorted(dump.items(), key=lambda past: past[1][0]))
        return keys


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

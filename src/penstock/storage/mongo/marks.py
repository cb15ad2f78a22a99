"""What a state means for the documents of its messages: which are consumed, and which are done."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import inf
from typing import Any

from pymongo import UpdateMany

from penstock.core.config import DEFAULT_SUBSCRIPTION
from penstock.core.runs import Run, Runs, runs_of
from penstock.storage.archiving import QueueState

__all__ = [
    "added",
    "consumed",
    "count_updates",
    "index_condition",
    "mark_updates",
    "unmark_updates",
]

# The bounds of all indexes, which a subscription that does not exist holds back none of.
_EVERYTHING: Sequence[float] = (0, inf)
# More than any index.
_BEYOND = 2**62


def consumed(state: QueueState, start: int = 0) -> Runs:
    """What the default subscription has settled, from an index on."""
    reader = state.reader(DEFAULT_SUBSCRIPTION)
    found = Runs() if reader is None else _runs(reader.settled, start)
    found.discard(state.next, found.stop)
    return found


def _done(state: QueueState, start: int) -> Runs:
    """What every subscription has settled and no dead letter refers to, so that it may expire."""
    found = Runs([(start, state.next)])
    for reader in state.readers:
        for run in list(_runs(reader.settled, start).outside(start, state.next)):
            found.discard(*run)
    for pinned in state.pins[::2]:
        found.discard(int(pinned), int(pinned) + 1)
    return found


def _runs(bounds: Sequence[int], start: int) -> Runs:
    """The runs with these bounds, from an index on."""
    at = bisect_right(bounds, start)
    rest = bounds[at:] if at % 2 == 0 else [start, *bounds[at:]]
    return Runs(zip(rest[::2], rest[1::2], strict=True))


def added(before: Runs, now: Runs) -> Iterator[Run]:
    """What is in ``now`` and not in ``before``."""
    for start, stop in now:
        yield from list(before.outside(start, stop))


def index_condition(run: Run) -> dict[str, Any]:
    return {"index": {"$gte": run[0], "$lt": run[1]}}


def mark_updates(
    before: QueueState | None, state: QueueState, repeat_from: int | None
) -> Iterator[UpdateMany]:
    """Set ``consumed`` and ``done`` where they have changed, and from ``repeat_from`` on."""
    start = 0 if before is None else _lowest_change(before, state)
    if repeat_from is not None:
        start = min(start, repeat_from)
    if before is not None and start >= max(before.next, state.next):
        return  # the usual case after a change of definitions
    for field, runs_in in (("consumed", consumed), ("done", _done)):
        old = Runs() if before is None else runs_in(before, start)
        new = runs_in(state, start)
        if repeat_from is not None:
            old.discard(repeat_from, max(repeat_from, old.stop))
        for value, runs in ((True, added(old, new)), (False, added(new, old))):
            for run in runs:
                yield UpdateMany(
                    index_condition(run) | {"salt": state.salt, field: not value},
                    {"$set": {field: value}},
                )


def unmark_updates(state: QueueState) -> Iterator[UpdateMany]:
    """Take back marks that do not follow from a state."""
    for field, runs_in in (("consumed", consumed), ("done", _done)):
        for start, stop in runs_in(state, 0).outside(0, _BEYOND):
            yield UpdateMany(
                index_condition((start, stop)) | {"salt": state.salt, field: True},
                {"$set": {field: False}},
            )


def _lowest_change(before: QueueState, state: QueueState) -> int:
    """The lowest index at which they may differ in what is settled or pinned."""
    had, has = (one.reader(DEFAULT_SUBSCRIPTION) is not None for one in (before, state))
    if had != has:
        return 0  # without it, nothing is consumed
    lowest: float = min(before.next, state.next)
    former = {reader.name: reader for reader in before.readers}
    for reader in state.readers:
        old = former.pop(reader.name, None)
        if old is not reader:
            bounds = _EVERYTHING if old is None else old.settled
            lowest = min(lowest, _first_difference(bounds, reader.settled))
    for old in former.values():
        lowest = min(lowest, _first_difference(old.settled, _EVERYTHING))
    if before.pins != state.pins:
        changed = {*before.pins[::2]} ^ {*state.pins[::2]}
        lowest = min(lowest, *map(int, changed), inf)
    return int(lowest)


def _first_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """The lowest index that is within just one of these bounds."""
    for a, b in zip_longest(one, other, fillvalue=inf):
        if a != b:
            return min(a, b)
    return inf


def count_updates(salt: int, counts: dict[int, int]) -> Iterator[UpdateMany]:
    """Raise the delivery counts, with one update for each run of messages with the same count."""
    by_count: dict[int, list[int]] = {}
    for index, count in counts.items():
        by_count.setdefault(count, []).append(index)
    for count, indexes in by_count.items():
        for run in runs_of(sorted(indexes)):
            yield UpdateMany(
                index_condition(run) | {"salt": salt}, {"$max": {"deliveryCount": count}}
            )

"""Where a read begins and ends, and how it is cut into tasks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil

from penstock.errors import InvalidArgument
from penstock.spark.fetch import Range
from penstock.spark.options import ReadOptions

__all__ = ["Position", "Span", "parse_position", "share", "split"]

Span = tuple[int, int]
# A word, a time, or an index (or a word) for each queue.
Position = str | datetime | dict[str, int | str]

_KAFKAS = {-2: "earliest", -1: "latest"}


def parse_position(name: str, text: str, words: tuple[str, ...]) -> Position:
    """Parse a word, JSON such as ``{"orders": 17}``, or a time with its zone.

    As in Spark's Kafka source, -2 in the JSON is the earliest and -1 the latest.
    """
    if text in words:
        return text
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as exc:
            raise InvalidArgument(f"{name} is not JSON: {exc}") from exc
        for queue, index in found.items():
            if not isinstance(index, int) or isinstance(index, bool) or index < -2:
                raise InvalidArgument(
                    f"{name} has {index!r} for {queue!r}: use an index, -2 for the earliest or "
                    "-1 for the latest"
                )
        return {queue: _KAFKAS.get(index, index) for queue, index in found.items()}
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # no time, or in UTC it is before the year 1 or after 9999
    raise InvalidArgument(
        f"{name} is {text!r}: use {', '.join(words)}, JSON such as "
        '{"orders": 17}, or a moment with its zone such as 2030-01-31T12:00:00Z'
    )


def split(spans: dict[str, Span], options: ReadOptions) -> list[Range]:
    """Ranges of about the same size: at least `minPartitions`, more if they would be too large."""
    total = sum(stop - start for start, stop in spans.values() if stop > start)
    ranges = []
    for queue, (start, stop) in sorted(spans.items()):
        rows = stop - start
        if rows <= 0:
            continue
        count = max(
            ceil(rows / options.max_records_per_partition),
            min(rows, ceil(options.min_partitions * rows / total)),
        )
        cuts = [start + rows * i // count for i in range(count + 1)]
        ranges += [Range(queue, *cut) for cut in pairwise(cuts)]
    return ranges


def share(backlogs: dict[str, int], limit: int, turn: int) -> dict[str, int]:
    """Share ``limit`` rows between the backlogs: equally, as far as each backlog goes.

    If there is not a row for each, they take turns: ``turn`` is how many rows were taken before.
    """
    if limit < len(backlogs):
        names = sorted(backlogs)
        first = turn % len(names)
        chosen = set((names[first:] + names[:first])[:limit])
        return {name: int(name in chosen) for name in names}
    taken = {}
    left, waiting = limit, len(backlogs)
    for queue, backlog in sorted(backlogs.items(), key=lambda item: item[1]):
        taken[queue] = min(backlog, left // waiting)
        left -= taken[queue]
        waiting -= 1
    return taken

"""Backlogs, as the server counts them.

They cannot be told from what was landed: no event says which messages a filter has left out, a
purge has removed, or a seek has skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from penstock.spark.errors import Unreachable
from penstock.spark.options import read_options
from penstock.spark.queues import Queues

__all__ = ["Backlog", "measure_backlogs"]


class Backlog(NamedTuple):
    """How many messages a subscription had yet to settle."""

    at: datetime
    queue: str
    subscription: str
    backlog: int


def measure_backlogs(options: Mapping[str, str]) -> list[Backlog]:
    """Of every subscription of the queues. ``options`` are those of the stream of messages.

    None if the server does not answer at once: it is asked again at the next refresh.
    """
    try:
        at, found = Queues(read_options({**options, "retrySeconds": "0"}, "stream")).unsettled()
    except Unreachable:
        return []
    return (
        []
        if at is None
        else [
            Backlog(at, queue, subscription, count)
            for (queue, subscription), count in found.items()
        ]
    )

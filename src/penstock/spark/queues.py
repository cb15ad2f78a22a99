"""The driver's requests to a server: which queues exist, where they end, how far a stream has got.

When events are read, ``queue`` is the observed queue; the log that is read, its indexes and its
subscription are those of ``<queue>-events``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.errors import InvalidArgument
from penstock.spark.errors import Refused
from penstock.spark.fetch import Range, fetch
from penstock.spark.http import server_of
from penstock.spark.options import ReadOptions
from penstock.spark.schema import Shaper, read_schema

__all__ = ["Place", "QueueState", "Queues"]

EVENTS_SUFFIX = "-events"
_LETTERS_SUFFIX = "-dlq"
# The parts of a subscription's statistics that are everything unsettled.
_UNSETTLED = ("ready", "in_flight", "delayed", "parked", "held")

# Where a new subscription starts: a word, an index, or a time.
Place = str | int
# Of a queue, as the server answers them.
_Stats = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """The queue has the indexes ``first <= index < next``; `floor` is the subscription's, if any.

    `is_held`: some messages wait for other subscriptions first.
    """

    name: str
    first: int
    next: int
    floor: int | None
    is_held: bool


class Queues:
    """Asks the server each time; nothing is cached."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._server = server_of(options.connection)
        self._pattern = re.compile(options.pattern) if options.pattern else None

    def look(self) -> dict[str, QueueState]:
        """The queues to read that exist."""
        return {name: self._state(name, stats) for name, stats in self._stats().items()}

    def unsettled(self) -> tuple[datetime | None, dict[tuple[str, str], int]]:
        """How many messages each subscription of these queues has yet to settle, and when.

        The time is the server's, if it tells.
        """
        found = {
            (name, each["name"]): sum(each[part] for part in _UNSETTLED)
            for name, stats in self._stats().items()
            for each in stats["subscriptions"]
        }
        return self._server.time, found

    def _stats(self) -> dict[str, _Stats]:
        if len(self._options.subscribe) == 1:
            (name,) = self._options.subscribe
            try:
                found = [self._server.get(f"/v1/queues/{self._log(name)}")]
            except Refused as exc:
                if exc.reason != "queue_not_found":
                    raise
                found = []
        else:
            found = self._server.get("/v1/stats")["queues"]
        by_log = {stats["name"]: stats for stats in found}
        return {name: by_log[log] for name, log in self._wanted(by_log)}

    def check_found(self, states: dict[str, QueueState]) -> None:
        """Raises `InvalidArgument` if a queue that is named does not exist, or tells no events."""
        missing = [name for name in self._options.subscribe if name not in states]
        if missing and self._options.is_events:
            raise InvalidArgument(
                f"there are no events of queue {missing[0]!r}: create it, and turn its setting "
                "events on"
            )
        if missing:
            raise InvalidArgument(f"there is no queue {missing[0]!r} to read: create it first")

    def _wanted(self, logs: Mapping[str, _Stats]) -> list[tuple[str, str]]:
        if self._pattern is None:
            named = [(name, self._log(name)) for name in self._options.subscribe]
            return [(name, log) for name, log in named if log in logs]
        if self._options.is_events:
            found = [log for log in sorted(logs) if _holds_events(log, logs)]
        else:
            found = [log for log in sorted(logs) if not _is_system(log, logs)]
        suffix = EVENTS_SUFFIX if self._options.is_events else ""
        names = [(log.removesuffix(suffix), log) for log in found]
        return [(name, log) for name, log in names if self._pattern.fullmatch(name)]

    def _state(self, name: str, stats: _Stats) -> QueueState:
        mine = [s for s in stats["subscriptions"] if s["name"] == self._options.subscription]
        floor = None
        if mine:
            if mine[0]["config"]["filter"] is not None:
                raise InvalidArgument(
                    f"subscription {self._options.subscription!r} of queue {name!r} has a filter, "
                    "and a stream reads every message: use another one and filter in Spark"
                )
            floor = mine[0]["lowest_unacked_index"]
        return QueueState(
            name=name,
            first=stats["first_index"],
            next=stats["next_index"],
            floor=floor,
            is_held=bool(mine and mine[0]["held"]),
        )

    def head(self, state: QueueState, above: int, *, is_durable: bool = False) -> int:
        """How far the queue can be read now; everything below is durable.

        The stats may count messages that are not synced yet. A read waits for the sync, so a read
        after the stats proves them durable; with ``is_durable`` that is already known.
        """
        head = state.next
        if head <= above:
            return head
        log = self._log(state.name)
        if not is_durable:
            last = f"start={head - 1}&limit=1&include_body=false"
            page = self._server.get(f"/v1/queues/{log}/messages?{last}")
            if not page["messages"] and state.first < head:
                return above
        if state.is_held:
            path = f"/v1/queues/{log}/subscriptions/{self._options.subscription}/held?limit=1"
            held = self._server.get(path)["indexes"]
            head = min([head, *held])
        return head

    def subscribe(self, name: str, place: Place) -> int:
        """The floor of the stream's subscription, which is created at ``place`` if need be.

        The server does both atomically, so a retry cannot skip what came in between.
        """
        path = f"/v1/queues/{self._log(name)}/subscriptions/{self._options.subscription}"
        stats = self._server.call("PUT", path, {"start": place})
        return int(stats["lowest_unacked_index"])

    def finish(self, name: str, index: int) -> None:
        """Move the floor, because the stream is done with everything below ``index``."""
        path = f"/v1/queues/{self._log(name)}/subscriptions/{self._options.subscription}/settle"
        self._server.call("POST", path, {"ack_up_to": index})

    def index_at(self, state: QueueState, moment: datetime) -> int:
        """The first index that is not older than ``moment``, or the end of the queue."""
        return self._first(state, lambda at: at >= moment)

    def index_after(self, state: QueueState, moment: datetime) -> int:
        """The first index that is younger than ``moment``, or the end of the queue."""
        return self._first(state, lambda at: at > moment)

    def _first(self, state: QueueState, is_far_enough: Callable[[datetime], bool]) -> int:
        low, high = state.first, state.next
        while low < high:
            middle = (low + high) // 2
            at = self._time_of(state.name, middle)
            if at is None or not is_far_enough(at):
                low = middle + 1
            else:
                high = middle
        return low

    def _time_of(self, name: str, index: int) -> datetime | None:
        options = _envelopes(self._options)
        column = "at" if options.is_events else "created_at"
        for batch in fetch(Range(name, index, index + 1), options, Shaper(read_schema(options))):
            moment: datetime = batch.column(column)[0].as_py()
            return moment
        return None

    def index_of(self, name: str, id: str) -> int | None:
        """The index of the message with that id, if the queue holds it."""
        try:
            known = UUID(id)
        except ValueError:
            return None  # any text can be asked for, and not all are good in a path
        try:
            return int(self._server.get(f"/v1/queues/{name}/messages/{known}")["index"])
        except Refused as exc:
            if exc.reason in ("message_not_found", "invalid_argument"):
                return None
            raise

    def _log(self, name: str) -> str:
        return name + EVENTS_SUFFIX if self._options.is_events else name


def _is_system(name: str, known: Mapping[str, _Stats]) -> bool:
    """Whether it holds dead letters or events, which a pattern does not mean."""
    has_letters = name.endswith(_LETTERS_SUFFIX) and name.removesuffix(_LETTERS_SUFFIX) in known
    return has_letters or _holds_events(name, known)


def _holds_events(name: str, known: Mapping[str, _Stats]) -> bool:
    """Whether another queue tells its events there, or did. Any queue may have such a name.

    The server creates a queue of events without the default subscription, which others have.
    """
    observed = known.get(name.removesuffix(EVENTS_SUFFIX))
    if observed is None or not name.endswith(EVENTS_SUFFIX):
        return False
    is_default = [each["name"] == "default" for each in known[name]["subscriptions"]]
    return observed["config"]["events"] or not any(is_default)


def _envelopes(options: ReadOptions) -> ReadOptions:
    return ReadOptions(
        connection=options.connection,
        is_events=options.is_events,
        include_body=False,
        fail_on_data_loss=False,
    )

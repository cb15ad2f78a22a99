"""A second machine that never crashes: it is fed the events, one by one.

Recovery must bring the store to the state after some first part of the events that it had written,
and that part must hold everything that was committed. The state is compared as a whole, so a
checkpoint that forgets something is found even if no client would have noticed for a long time.
"""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import msgspec

from penstock.core.counters import Counters
from penstock.core.events import Event
from penstock.core.feed import Feed
from penstock.core.feeds import Feeds
from penstock.core.groups import Groups
from penstock.core.machine import NOWHERE, Journal, Machine, Place
from penstock.core.queue import Queue
from penstock.core.recent_keys import RecentKeys
from penstock.core.request_keys import RequestKeys
from penstock.core.runs import Runs
from penstock.core.schedule import Schedule
from penstock.core.subscription import Subscription
from tests.simulation.history import Violation

# What follows from the rest, what only saves work, and what is not of the machine: neither is part
# of the state.
_LEFT_OUT = {
    Queue: {"aging", "timeline", "stragglers", "ttl_checked", "duplicates", "dependents"},
    Feeds: {"by_topic", "others", "reached"},
    # A recovery skips the epochs of deliveries that it cannot know of. That no receipt comes twice
    # is for the checker, which knows what clients were given. Who watched for `news` is gone.
    Subscription: {"deadlines", "cursors", "pulled", "epoch", "news"},
    Feed: {"since"},
}

_PLAIN = {bool, bytes, float, int, str, tuple, type(None)}  # as they are


class Tap(Journal):
    """Stands between a machine and its journal."""

    def __init__(self, journal: Journal, twin: Twin) -> None:
        self._journal = journal
        self._twin = twin

    def append(self, event: Event) -> Place:
        place = self._journal.append(event)
        self._twin.events.append(event)
        return place


class Twin:
    """``committed`` counts the events that recovery must bring back."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.committed = 0
        self._applied = 0
        self._machine = Machine(journal=_NoJournal(), rng=Random(0))

    def watch(self, machine: Machine) -> None:
        machine.journal = Tap(machine.journal, self)

    def check_same(self, machine: Machine, now_ns: int) -> None:
        """The living machine is what its events say."""
        self._apply(len(self.events))
        expected, state = state_of(self._machine, now_ns), state_of(machine, now_ns)
        expected |= _epochs_of(self._machine)
        if differing := _differing(expected, state | _epochs_of(machine)):
            raise Violation("events", f"it is not that of its events: {'; '.join(differing)}")

    def check_recovered(self, machine: Machine, now_ns: int) -> None:
        """Forgets the events that did not survive."""
        self._apply(self.committed)
        state = state_of(machine, now_ns)
        differences: list[list[str]] = []
        while differing := _differing(state_of(self._machine, now_ns), state):
            differences.append(differing)
            if self._applied == len(self.events):
                nearest = sorted(differences, key=len)[0]
                raise Violation(
                    "recovery",
                    f"the state is none of those after {self.committed} to {self._applied} "
                    f"events; compared with the nearest: {'; '.join(nearest)}",
                )
            self._apply(self._applied + 1)
        del self.events[self._applied :]
        self.committed = self._applied
        for id, subscription in self._machine.subscriptions.items():
            subscription.epoch = machine.subscriptions[id].epoch

    def check_shortened(self, machine: Machine, now_ns: int) -> None:
        """The state is that after some first part of the events, however short."""
        size, state = _size_of(machine), state_of(machine, now_ns)
        shorter = Twin()
        shorter.events = self.events
        while size != _size_of(shorter._machine) or state != state_of(shorter._machine, now_ns):
            if shorter._applied == len(self.events):
                raise Violation("recovery", "the state is that after no part of the events")
            shorter._apply(shorter._applied + 1)

    def _apply(self, count: int) -> None:
        for event in self.events[self._applied : count]:
            self._machine.apply(event, NOWHERE)
        self._applied = max(self._applied, count)


class _NoJournal(Journal):
    def append(self, event: Event) -> Place:
        raise AssertionError("the twin decides nothing")


def _epochs_of(machine: Machine) -> dict[str, Any]:
    readers = machine.subscriptions.values()
    return {f"{one.queue.name}/{one.name}.epoch": one.epoch for one in readers}


def _size_of(machine: Machine) -> tuple[int, dict[str, int]]:
    """A part of the state that is soon compared, and differs after most of the events."""
    return machine.last_id, {queue.name: queue.next for queue in machine.queues.values()}


def state_of(machine: Machine, now_ns: int) -> dict[str, Any]:
    """Everything that decides what a machine will do from now on, as plain values by path."""
    machine.advance(now_ns)
    found: dict[str, Any] = {"last_id": machine.last_id, "untold": dict(machine.untold)}
    for queue in machine.queues.values():
        queue.forget_dedup_keys(now_ns)
        _flatten(f"{queue.name}", queue, found)
        found[f"{queue.name}.stragglers"] = {
            index: batch.created_ns for index, batch in sorted(queue.stragglers.items())
        }
        found[f"{queue.name}.batches"] = [
            (batch.first, batch.created_ns)
            for batch in queue.timeline.batches(queue.first, queue.next)
        ]
        for subscription in queue.subscriptions.values():
            # What has become ready by the passing of time is no event.
            subscription.mature(now_ns)
            _flatten(f"{queue.name}/{subscription.name}", subscription, found)
    return found


def _flatten(path: str, value: object, found: dict[str, Any]) -> None:
    left_out = _LEFT_OUT[type(value)]
    for name in value.__slots__:  # type: ignore[attr-defined]
        if name not in left_out:
            found[f"{path}.{name}"] = _plain(getattr(value, name))


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    match value:
        case Queue() | Subscription():
            return value.name
        case Groups():
            return dict(value.lines)
        case Schedule():
            return dict(value.times)
        case Feed() | Feeds():
            found: dict[str, Any] = {}
            _flatten("", value, found)
            return found
        case RecentKeys():
            return dict(value.items())
        case RequestKeys():
            return dict(value.recent.items()), value.others
        case Counters():
            return msgspec.structs.asdict(value)
        case Runs() | array():
            return list(value)
        case dict():
            return {key: plain for key, part in value.items() if (plain := _plain(part)) != []}
        case list():
            return [_plain(part) for part in value]
        case _:
            return getattr(value, "source", value)


def _differing(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    if expected == found:
        return []
    paths = sorted(expected.keys() | found.keys())
    return [
        f"{path}: {expected.get(path)} became {found.get(path)}"
        for path in paths
        if expected.get(path) != found.get(path)
    ]

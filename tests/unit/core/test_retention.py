from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from penstock.core import definitions, publishing, retention, settling
from penstock.core import events as ev
from penstock.core.config import QueueConfig
from penstock.core.limits import NANOSECONDS
from penstock.core.machine import Machine, Place
from penstock.core.queue import Queue

QUEUE = "jobs"


class Journal:
    def append(self, event: ev.Event) -> Place:
        return Place(1, 1)


def queue_of(count: int, config: QueueConfig) -> tuple[Machine, Queue]:
    machine = Machine(journal=Journal(), rng=Random(1))
    queue = definitions.create_queue(machine, QUEUE, config, 0)
    publishing.publish(machine, QUEUE, publishing.prepare([b"x"] * count), 1)
    return machine, queue


def test_the_cut_stops_where_too_many_would_have_to_be_kept_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a queue that keeps no history, but may keep only three messages aside
    monkeypatch.setattr(retention, "MAX_STRAGGLERS", 3)
    machine, queue = queue_of(10, QueueConfig(retention_messages=0))
    # When nothing is settled, nothing can be cut
    retention.tick(machine, queue, 2)
    assert (queue.first, len(queue.stragglers)) == (0, 0)
    # When all but a few are, the cut goes up to the run that is too long
    for index in (0, 1, 3, 4):
        settling.ack(machine, QUEUE, "default", [queue.id_of(index)], 3)
    retention.tick(machine, queue, 4)
    assert (queue.first, list(queue.stragglers)) == (5, [2])
    # And all of them are held all the time
    assert [i for i in range(10) if queue.holds(i)] == [2, 5, 6, 7, 8, 9]


def test_nothing_is_said_when_there_is_nothing_to_cut() -> None:
    machine, queue = queue_of(3, QueueConfig(retention_seconds=None))
    retention.tick(machine, queue, 10**18)
    assert queue.first == 0


@pytest.mark.parametrize(
    "strict", [{"retention_seconds": 1}, {"retention_messages": 1}, {"retention_bytes": 1}]
)
def test_the_strictest_limit_counts_whichever_it_is(strict: dict[str, int]) -> None:
    # Given four messages of one byte, of which only the last is new
    lax = QueueConfig(retention_seconds=1000, retention_messages=3, retention_bytes=9)
    machine, queue = queue_of(3, replace(lax, **strict))
    publishing.publish(machine, QUEUE, publishing.prepare([b"x"]), 5 * NANOSECONDS)
    settling.ack_up_to(machine, QUEUE, "default", 4, 5 * NANOSECONDS)
    # When retention looks at them, then that one alone is kept
    retention.tick(machine, queue, 5 * NANOSECONDS)
    assert queue.first == 3


def test_the_strictest_limit_counts() -> None:
    machine, queue = queue_of(4, QueueConfig(retention_messages=3, retention_bytes=1000))
    settling.ack_up_to(machine, QUEUE, "default", 4, 1)
    retention.tick(machine, queue, 2)
    assert queue.first == 1
    definitions.alter_queue(machine, QUEUE, {"retention_messages": 1}, 3)
    retention.tick(machine, queue, 4)
    assert queue.first == 3

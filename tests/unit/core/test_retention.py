from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest
from msgspec.structs import replace

from penstock.core import (
    dead_letters,
    definitions,
    delivery,
    publishing,
    retention,
    settling,
)
from penstock.core import events as ev
from penstock.core.config import QueueConfig
from penstock.core.limits import NANOSECONDS
from penstock.core.machine import Machine, Place
from penstock.core.message import NewMessage
from penstock.core.queue import Queue

QUEUE = "jobs"


class Journal:
    def append(self, event: ev.Event) -> Place:
        return Place(1, 1)


def queue_of(count: int, config: QueueConfig) -> tuple[Machine, Queue]:
    machine = Machine(journal=Journal(), rng=Random(1))
    queue = definitions.create_queue(machine, QUEUE, config, 0)
    if count:
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


def test_the_cut_stops_where_several_together_would_be_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a queue that may keep three messages aside, in which every other one is settled
    monkeypatch.setattr(retention, "MAX_STRAGGLERS", 3)
    machine, queue = queue_of(10, QueueConfig(retention_messages=0))
    for index in range(0, 10, 2):
        settling.ack(machine, QUEUE, "default", [queue.id_of(index)], 2)
    # Then three of the others are kept aside, and all that follow stay
    retention.tick(machine, queue, 3)
    assert (queue.first, list(queue.stragglers)) == (7, [1, 3, 5])


def test_keys_are_forgotten_when_their_window_is_over() -> None:
    # Given a request with a key, and a message with one
    machine, queue = queue_of(0, QueueConfig(dedup_window_seconds=10))
    batch = publishing.prepare([NewMessage(body=b"x", dedup_key="k")]).with_key("r")
    publishing.publish(machine, QUEUE, batch, 1)
    # When the window is over, they take no space, though nobody publishes
    retention.tick(machine, queue, 10 * NANOSECONDS)
    assert (len(queue.requests), len(queue.dedup)) == (1, 1)
    retention.tick(machine, queue, 10 * NANOSECONDS + 1)
    assert (len(queue.requests), len(queue.dedup)) == (0, 0)


def test_what_is_aside_already_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a queue that may keep three messages aside, and has two of them
    monkeypatch.setattr(retention, "MAX_STRAGGLERS", 3)
    machine, queue = queue_of(2, QueueConfig(retention_messages=0))
    retention.tick(machine, queue, 2)
    assert list(queue.stragglers) == [0, 1]
    # When three more are neither settled nor wanted, one by one
    for at in range(3):
        publishing.publish(machine, QUEUE, publishing.prepare([b"x"]), 3 + at)
        retention.tick(machine, queue, 3 + at)
    # Then only one of them is kept aside
    assert (queue.first, list(queue.stragglers)) == (3, [0, 1, 2])


@pytest.mark.parametrize("way", ["acked", "skipped"])
def test_nothing_is_left_of_what_is_cut(way: str) -> None:
    # Given messages with delays and expiries, one of which is needed for long
    machine, queue = queue_of(0, QueueConfig(retention_messages=0))
    start, end = datetime.fromtimestamp(50, UTC), datetime.fromtimestamp(90, UTC)
    messages = [NewMessage(body=b"x", not_before=start, expires_at=end)] * 5
    publishing.publish(machine, QUEUE, publishing.prepare(messages), 1)
    for index in (0, 1, 2, 4):
        settling.ack(machine, QUEUE, "default", [queue.id_of(index)], 2)
    # When the others are cut off
    retention.tick(machine, queue, 3)
    # Then what was known of them is forgotten
    assert queue.first == 5
    for known in (queue.stragglers, queue.feeds.special, queue.expiry.times):
        assert list(known) == [3]
    # And in the end of that one, too
    if way == "acked":
        settling.ack(machine, QUEUE, "default", [queue.id_of(3)], 4)
    else:
        definitions.seek(machine, QUEUE, "default", 5, [], 4)
    assert not queue.stragglers
    assert not queue.feeds.special
    assert not queue.expiry.times


@pytest.mark.parametrize("is_first_cut", [True, False])
def test_who_gave_up_a_message_is_forgotten_with_it(is_first_cut: bool) -> None:
    # Given two dead letters, with a message between them, in a queue that keeps no history
    machine, queue = queue_of(3, QueueConfig(retention_messages=0))
    definitions.alter_subscription(machine, QUEUE, "default", {"max_deliveries": 1}, 1)
    handout = delivery.receive(machine, QUEUE, "default", 3, None, 2)
    assert handout is not None
    given_up = [queue.id_of(0), queue.id_of(2)]
    settling.nack(machine, QUEUE, "default", given_up, None, "no luck", 3)
    settling.ack(machine, QUEUE, "default", [queue.id_of(1)], 3)
    reader = queue.subscriptions["default"]
    # As long as there are letters of them, it is known who gave them up
    if is_first_cut:
        retention.tick(machine, queue, 4)
        assert (queue.first, list(queue.stragglers)) == (3, [0, 2])
    assert list(reader.dead) == [(0, 1), (2, 3)]
    # When one letter is discarded, and then the other
    dead_letters.discard(machine, QUEUE, [queue.id_of(2)], 5)
    retention.tick(machine, queue, 6)
    assert list(reader.dead) == [(0, 1)]
    dead_letters.discard(machine, QUEUE, None, 7)
    # Then nothing is left of either
    assert not reader.dead


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

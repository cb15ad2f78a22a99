"""What the machine puts out: the life of a message, told in events."""

from __future__ import annotations

from random import Random

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
from penstock.core.receipt import Receipt
from penstock.core.retry import Backoff
from penstock.core.snapshot import restore, take_snapshot

QUEUE = "jobs"


class Journal:
    """Keeps what comes, and whether the machine had applied it by then."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.machine: Machine | None = None
        self.was_applied: list[bool] = []

    def append(self, event: ev.Event) -> Place:
        self.events.append(event)
        if isinstance(event, ev.Published) and self.machine is not None:
            self.was_applied.append(self.machine.queue(QUEUE).next > event.first)
        return Place(len(self.events), 1)

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def new_machine(seed: int = 1) -> tuple[Machine, Journal]:
    journal = Journal()
    machine = Machine(journal=journal, rng=Random(seed))
    journal.machine = machine
    definitions.create_queue(machine, QUEUE, QueueConfig(message_ttl_seconds=100), 0)
    definitions.alter_subscription(
        machine,
        QUEUE,
        "default",
        {"max_deliveries": 2, "backoff": Backoff(base_seconds=4, jitter=1)},
        0,
    )
    journal.events.clear()
    return machine, journal


def take(machine: Machine, now_ns: int) -> str:
    handout = delivery.receive(machine, QUEUE, "default", 1, None, now_ns)
    assert handout is not None
    return Receipt(handout.subscription.id, handout.runs[0][0], handout.epoch).text


def live_a_life(machine: Machine) -> None:
    """Publish three messages: one is acked, one fails and is replayed, one expires."""
    publishing.publish(machine, QUEUE, publishing.prepare([b"a", b"b", b"c"]), 1)
    first, second = take(machine, 2), take(machine, 2)
    settling.ack(machine, QUEUE, "default", [first], 3)
    settling.nack(machine, QUEUE, "default", [second], None, "why", 4)
    settling.nack(machine, QUEUE, "default", [take(machine, 5 * NANOSECONDS)], 0, "", 6)
    retention.tick(machine, machine.queue(QUEUE), 40 * NANOSECONDS)
    dead_letters.replay(machine, QUEUE, None, 50 * NANOSECONDS)
    retention.tick(machine, machine.queue(QUEUE), 101 * NANOSECONDS)


def test_the_life_of_a_message_is_told_in_order() -> None:
    machine, journal = new_machine()
    live_a_life(machine)
    assert journal.names == [
        "Published",
        "Delivered",
        "Delivered",
        "Acked",
        "Nacked",
        "Delivered",
        "QueueCreated",
        "DeadLettered",
        "Replayed",
        "Expired",
    ]
    assert [event.at_ns for event in journal.events[:5]] == [1, 2, 2, 3, 4]


def test_an_event_reaches_the_journal_before_it_is_applied() -> None:
    machine, journal = new_machine()
    live_a_life(machine)
    assert journal.was_applied == [False]


def test_the_same_commands_time_and_randomness_give_the_same_events() -> None:
    lives = []
    for _ in range(2):
        machine, journal = new_machine(seed=7)
        live_a_life(machine)
        lives.append(journal.events)
    assert lives[0] == lives[1]


def test_other_randomness_gives_another_backoff() -> None:
    dues = []
    for seed in (1, 2):
        machine, journal = new_machine(seed)
        live_a_life(machine)
        dues += [event.due_ns for event in journal.events if isinstance(event, ev.Nacked)]
    assert dues[0] != dues[1]


def test_a_command_that_changes_nothing_says_nothing() -> None:
    machine, journal = new_machine()
    assert delivery.receive(machine, QUEUE, "default", 1, None, 1) is None
    assert settling.ack_up_to(machine, QUEUE, "default", 10, 1) == 0
    assert dead_letters.replay(machine, QUEUE, None, 1) == 0
    former = Receipt(machine.subscription(QUEUE, "default").id, 0, 1).text
    for further in (True, False):
        settling.extend(machine, QUEUE, "default", [former], 5, 1, further=further)
    settling.nack(machine, QUEUE, "default", [former], None, "", 1)
    settling.give_back(machine, QUEUE, "default", [former], 1)
    definitions.alter_queue(machine, QUEUE, {}, 1)
    definitions.alter_subscription(machine, QUEUE, "default", {"paused": False}, 1)
    definitions.purge_queue(machine, QUEUE, 1)
    retention.tick(machine, machine.queue(QUEUE), 1)
    assert journal.events == []


def test_runs_are_written_flat_and_read_back() -> None:
    runs = [(3, 5), (0, 1)]
    assert ev.flat(runs) == [3, 5, 0, 1]
    assert ev.pairs(ev.flat(runs)) == runs


def test_what_is_untold_is_in_a_snapshot() -> None:
    # Given a queue whose events are told, and a message that is published but not told yet
    machine, _ = new_machine()
    definitions.alter_queue(machine, QUEUE, {"events": True}, 1)
    publishing.publish(machine, QUEUE, publishing.prepare([b"x"]), 2)
    assert machine.untold
    # When another machine goes on from a snapshot
    twin = Machine(journal=Journal(), rng=Random(1))
    restore(twin, take_snapshot(machine))
    # Then it tells the same
    assert twin.untold == machine.untold
    assert twin.is_observed


def test_of_a_queue_that_is_gone_nothing_is_told() -> None:
    machine, _ = new_machine()
    definitions.alter_queue(machine, QUEUE, {"events": True}, 1)
    publishing.publish(machine, QUEUE, publishing.prepare([b"x"]), 2)
    definitions.delete_queue(machine, QUEUE, 3)
    assert machine.untold == {}


def test_nothing_is_taken_back_for_a_subscription_that_is_gone() -> None:
    # Given messages that were given to somebody on a subscription that was deleted then
    machine, journal = new_machine()
    publishing.publish(machine, QUEUE, publishing.prepare([b"x"]), 1)
    handout = delivery.receive(machine, QUEUE, "default", 1, None, 1)
    assert handout is not None
    definitions.delete_subscription(machine, QUEUE, "default", 2)
    journal.events.clear()
    # When he is not there any more, then there is nothing to say about them
    settling.undo(machine, handout, 3)
    assert journal.events == []

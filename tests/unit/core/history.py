"""A random history: commands for one machine, each followed by every check that the model allows.

A step is plain data, ``(command, a, b, c)``: the numbers choose among what there is at that
moment, so any list of steps is a history, and a part of a failing one is a history too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from penstock.core import (
    dead_letters,
    definitions,
    delivery,
    publishing,
    retention,
    settling,
)
from penstock.core import events as ev
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.limits import NANOSECONDS
from penstock.core.machine import Machine, Place
from penstock.core.message import NewMessage
from penstock.core.queue import Queue
from penstock.core.receipt import Receipt
from penstock.core.retry import Backoff
from penstock.core.runs import Run, runs_of
from penstock.core.snapshot import MachineSnapshot, restore, take_snapshot
from penstock.core.subscription import Subscription
from penstock.errors import Conflict, InvalidDependency, MessageNotFound, QueueFull
from tests.unit.core.checks import check_reader, compare
from tests.unit.core.naive import NaiveQueue, Poll
from tests.unit.core.naive_subscription import NaiveSubscription
from tests.unit.core.sent import FILTERS, indexes_in, indexes_of

__all__ = ["COMMANDS", "CONFIGS", "History", "Step"]

Step = tuple[str, int, int, int]

QUEUE = "jobs"
LETTERS = "jobs-dlq"
NAMES = ("default", "a", "b", "c", "d")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_START_NS = int(_START.timestamp()) * NANOSECONDS

CONFIGS = (
    QueueConfig(),
    QueueConfig(fifo=True),
    QueueConfig(message_ttl_seconds=40, retention_messages=3),
    QueueConfig(fifo=True, retention_seconds=20),
    QueueConfig(max_messages=6, retention_messages=0),
    QueueConfig(retention_messages=2, retain_unsettled=False, message_ttl_seconds=60),
)


class _Recorder:
    """Keeps every event, and shows it to the naive model before the machine applies it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.events: list[tuple[ev.Event, Place]] = []

    def append(self, event: ev.Event) -> Place:
        place = Place(len(self.events) + 1, 1)
        self.events.append((event, place))
        self.history.saw(event)
        return place


class History:
    """The machine, its time, and the naive model beside it."""

    def __init__(self, config: QueueConfig) -> None:
        self.recorder = _Recorder(self)
        self.machine = Machine(journal=self.recorder, rng=Random(1))
        self.now_ns = _START_NS
        self.naive = NaiveQueue(config)
        self.receipts: dict[str, list[str]] = {}
        self.snapshot: tuple[int, bytes, list[Any]] | None = None
        self._steps = 0
        definitions.create_queue(self.machine, QUEUE, config, self.now_ns)
        self._alter(0, max_deliveries=2)

    @property
    def queue(self) -> Queue:
        return self.machine.queue(QUEUE)

    def saw(self, event: ev.Event) -> None:
        letters = self.machine.queues.get(LETTERS)
        if letters is None:
            if not (isinstance(event, ev.QueueCreated) and event.dead_letters_of):
                self.naive.follow(event)
            return
        if getattr(event, "queue_id", 0) == letters.id:
            return
        reader = letters.default
        if reader is not None and getattr(event, "subscription_id", 0) == reader.id:
            if isinstance(event, ev.Acked | ev.Expired):
                for index in indexes_in(event.runs):
                    del self.naive.letters[index]
            return
        self.naive.follow(event)

    def do(self, step: Step) -> None:
        """Run one step and check everything."""
        command, a, b, c = step
        COMMANDS[command](self, a, b, c)
        self.check()
        self._steps += 1
        if self._steps % 10 == 0:
            self.compare_with_replay()

    def compare_with_replay(self) -> None:
        """The events alone lead to the same state."""
        compare(self.machine, self._replayed(), self.now_ns)

    # Choosing.

    def _reader(self, number: int) -> Subscription | None:
        readers = list(self.queue.subscriptions.values())
        return readers[number % len(readers)] if readers else None

    def _naive(self, reader: Subscription) -> NaiveSubscription:
        return self.naive.subscriptions[reader.name]

    def _parents(self, number: int) -> tuple[str, ...]:
        names = list(self.queue.subscriptions)
        return tuple(name for at, name in enumerate(names) if number >> at & 1)[:2]

    def _matches(self, filter_text: str | None, start: int) -> list[Run]:
        missing = definitions.backfill_range(self.queue, filter_text, start)
        if missing is None:
            return []
        wants = FILTERS[filter_text]
        return runs_of(i for i in range(*missing) if wants(self.naive.sent[i]))

    def _targets(self, reader: Subscription, a: int, b: int) -> list[str]:
        """Mostly receipts of what is in flight; at times old ones, at times ids."""
        leases = self._naive(reader).leases
        live = [Receipt(reader.id, i, lease.epoch).text for i, lease in leases.items()]
        old = [
            text
            for text in self.receipts.get(reader.name, [])[-20:]
            if Receipt.parse(text).subscription_id == reader.id
        ]
        known = live if live and a % 4 else old
        targets = [known[(a + at) % len(known)] for at in range(b % 3 + 1) if known]
        if b % 5 == 0 and self.naive.sent:
            index = a % self.naive.next
            if self.queue.holds(index):
                targets.append(self.queue.id_of(index))
        return targets

    # Commands.

    def publish(self, a: int, b: int, c: int) -> None:
        rng = Random(f"{a} {b}")
        messages = [self._message(rng) for _ in range(c % 4 + 1)]
        before = self.naive.next
        batch = publishing.prepare(messages)
        try:
            result = publishing.publish(self.machine, QUEUE, batch, self.now_ns)
        except QueueFull:
            assert self.naive.next == before
            assert self.naive.config.max_messages is not None
            assert self._backlog() + len(messages) > self.naive.config.max_messages
            return
        bound = self.naive.config.max_messages
        assert bound is None or before == self.naive.next or self._backlog() <= bound
        for message, published in zip(messages, result, strict=True):
            sent = self.naive.sent[published.index]
            assert published.duplicate == (published.index < before or sent.body != message.body)
            assert sent.envelope.dedup_key == message.dedup_key
            if self.queue.holds(published.index):  # a first one may have expired just now
                assert published.id == self.queue.id_of(published.index)

    def _backlog(self) -> int:
        return max((len(s.unsettled) for s in self.naive.subscriptions.values()), default=0)

    def _message(self, rng: Random) -> NewMessage | Any:
        due = now = _START + timedelta(seconds=(self.now_ns - _START_NS) / NANOSECONDS)
        options: dict[str, Any] = {}
        if rng.random() < 0.3:
            options["priority"] = rng.choice([0, 3, 9])
        if rng.random() < 0.2:
            options["not_before"] = now + timedelta(seconds=rng.choice([-5, 5, 15]))
            due = max(due, options["not_before"])
        if rng.random() < 0.1:
            options["expires_at"] = due + timedelta(seconds=rng.choice([3, 10, 30]))
        if rng.random() < 0.5:
            options["group_key"] = rng.choice(["g", "h"])
        if rng.random() < 0.5:
            options["topic"] = rng.choice(["red", "blue"])
        body = rng.choice([b'"odd"', b'"even"'])
        if rng.random() < 0.1:
            options["dedup_key"] = rng.choice(["k", "l"])
            # The body tells a first from a second one in the same batch.
            body = str(rng.random()).encode()
        return NewMessage(body=body, **options)

    def receive(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is None:
            return
        limit = b % 5 + 1
        handout = delivery.receive(
            self.machine, QUEUE, reader.name, limit, None if c % 3 else 7, self.now_ns
        )
        given = self._took(reader, handout)
        if given < limit and not reader.config.paused:
            naive = self._naive(reader)
            is_full = len(naive.leases) >= naive.config.max_in_flight
            assert is_full or not naive.ready(self.now_ns), "something ready was not given"

    def _took(self, reader: Subscription, handout: delivery.Handout | None) -> int:
        if handout is None:
            return 0
        indexes = indexes_of(handout.runs)
        self.receipts.setdefault(reader.name, []).extend(
            Receipt(reader.id, index, handout.epoch).text for index in indexes
        )
        return len(indexes)

    def poll(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is None:
            return
        start, count = b % (self.naive.next + 1), c % 6 + 1
        cursor = reader.cursor
        self.naive.polling = Poll(cursor=cursor, start=start, count=count)
        handout = delivery.poll(self.machine, QUEUE, reader.name, start, count, self.now_ns)
        self._took(reader, handout)
        naive = self._naive(reader)
        if reader.cursor == cursor and not naive.config.paused:
            begin, end = self.naive.polling.range(naive, self.now_ns)
            assert begin >= end or len(naive.leases) >= naive.config.max_in_flight
        self.naive.polling = None

    def ask_again(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is None or not self.naive.sent:
            return
        index = b % self.naive.next
        self.naive.asked = index
        try:
            handout = delivery.ask_again(self.machine, QUEUE, reader.name, index, self.now_ns)
            assert self._took(reader, handout) == 1
        except (Conflict, MessageNotFound):
            pass
        finally:
            self.naive.asked = None

    def ack(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            settling.ack(self.machine, QUEUE, reader.name, self._targets(reader, b, c), self.now_ns)

    def ack_up_to(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            index = reader.floor + b % 4
            settling.ack_up_to(self.machine, QUEUE, reader.name, index, self.now_ns)

    def nack(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            targets = self._targets(reader, b, c)
            delay = [None, 0.0, 8.0][c % 3]
            settling.nack(self.machine, QUEUE, reader.name, targets, delay, "no luck", self.now_ns)

    def give_back(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            targets = self._targets(reader, b, c)
            settling.give_back(self.machine, QUEUE, reader.name, targets, self.now_ns)

    def extend(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            targets = self._targets(reader, b, c)
            settling.extend(self.machine, QUEUE, reader.name, targets, c % 20 + 1, self.now_ns)

    def pass_time(self, a: int, b: int, c: int) -> None:
        self.now_ns += (a % 12 + 1) * NANOSECONDS

    def tick(self, a: int, b: int, c: int) -> None:
        for queue in list(self.machine.queues.values()):
            retention.tick(self.machine, queue, self.now_ns)
        for reader in self.naive.subscriptions.values():
            for index in reader.unsettled - reader.leases.keys():
                assert not self.naive.has_expired(index, self.now_ns)
            for lease in reader.leases.values():
                assert lease.deadline_ns is None or lease.deadline_ns > self.now_ns

    def seek(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            queue = self.queue
            start = definitions.resolve_start(queue, queue.next - b % 8)
            matches = self._matches(reader.config.filter, start)
            definitions.seek(self.machine, QUEUE, reader.name, start, matches, self.now_ns)

    def subscribe(self, a: int, b: int, c: int) -> None:
        free = [name for name in NAMES if name not in self.queue.subscriptions]
        if not free:
            return
        config = SubscriptionConfig(
            filter=[None, *FILTERS][a % (len(FILTERS) + 1)],
            after=self._parents(b // 3),
            on_dead_parent=("hold", "cascade", "ignore")[b % 3],
            lease_seconds=(None, 5, 10)[c % 3],
            max_in_flight=(2, 5, 100)[a % 3],
            max_deliveries=(1, 2, None)[c // 3 % 3],
            backoff=Backoff(base_seconds=c % 4),
        )
        start = definitions.resolve_start(self.queue, self.queue.next - c % 8)
        matches = self._matches(config.filter, start)
        definitions.create_subscription(
            self.machine, QUEUE, free[0], config, start, matches, self.now_ns
        )

    def unsubscribe(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            definitions.delete_subscription(self.machine, QUEUE, reader.name, self.now_ns)

    def _alter(self, a: int, **changes: Any) -> None:
        reader = self._reader(a)
        if reader is not None:
            definitions.alter_subscription(self.machine, QUEUE, reader.name, changes, self.now_ns)

    def rewire(self, a: int, b: int, c: int) -> None:
        try:
            self._alter(a, after=self._parents(b))
        except InvalidDependency:
            return

    def change_policy(self, a: int, b: int, c: int) -> None:
        self._alter(a, on_dead_parent=("hold", "cascade", "ignore")[b % 3])

    def limit(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            self._alter(a, max_in_flight=len(reader.leases) + b % 3 + 1, max_deliveries=c % 3 + 1)

    def pause(self, a: int, b: int, c: int) -> None:
        self._alter(a, paused=b % 3 == 0)

    def purge(self, a: int, b: int, c: int) -> None:
        before = self.queue.messages
        purged = definitions.purge_queue(self.machine, QUEUE, self.now_ns)
        assert self.queue.first == self.queue.next
        assert self.queue.messages == before - purged
        assert set(self.queue.stragglers) <= self.queue.pins.keys()

    def change_retention(self, a: int, b: int, c: int) -> None:
        changes = {
            "retention_messages": (None, 0, 3)[a % 3],
            "retention_bytes": (None, 50)[b % 2],
            "max_messages": (None, 12)[c % 2],
            "message_ttl_seconds": (None, 20, 40)[c % 3],
        }
        definitions.alter_queue(self.machine, QUEUE, changes, self.now_ns)

    def _letter_ids(self, a: int) -> list[str] | None:
        letters = list(self.naive.letters.values())
        if a % 2 == 0 or not letters:
            return None
        return [self.queue.id_of(letters[a % len(letters)][1])]

    def replay(self, a: int, b: int, c: int) -> None:
        dead_letters.replay(self.machine, QUEUE, self._letter_ids(a), self.now_ns)

    def discard(self, a: int, b: int, c: int) -> None:
        count = dead_letters.discard(self.machine, QUEUE, self._letter_ids(a), self.now_ns)
        assert a % 2 or not self.naive.letters
        assert count >= 0

    def consume_letters(self, a: int, b: int, c: int) -> None:
        if LETTERS not in self.machine.queues:
            return
        handout = delivery.receive(self.machine, LETTERS, "default", a % 3 + 1, 5, self.now_ns)
        if handout is not None and b % 2:
            receipts = [
                Receipt(handout.subscription.id, index, handout.epoch).text
                for index in indexes_of(handout.runs)
            ]
            settling.ack(self.machine, LETTERS, "default", receipts, self.now_ns)

    def release(self, a: int, b: int, c: int) -> None:
        reader = self._reader(a)
        if reader is not None:
            held = sorted(self._naive(reader).held)
            if held:
                dead_letters.release(
                    self.machine, QUEUE, reader.name, [held[b % len(held)]], self.now_ns
                )

    def recover(self, a: int, b: int, c: int) -> None:
        """Go on with a machine that was made from the events alone."""
        self.compare_with_replay()
        self.machine = self._replayed()

    def take_snapshot(self, a: int, b: int, c: int) -> None:
        shot = msgspec.msgpack.encode(take_snapshot(self.machine))
        timelines = [(queue.id, queue.timeline.dump(0, 2**62)) for queue in self._queues()]
        self.snapshot = len(self.recorder.events), shot, timelines

    def restore(self, a: int, b: int, c: int) -> None:
        """Go on with a machine made from the last snapshot and the events since."""
        if self.snapshot is None:
            return
        at, shot, timelines = self.snapshot
        machine = Machine(journal=self.recorder, rng=Random(1))
        stragglers = restore(machine, msgspec.msgpack.decode(shot, type=MachineSnapshot))
        full = self._replayed(at)
        for queue_id, part in timelines:
            queue = machine.queues_by_id[queue_id]
            queue.timeline.load(part)
            twin = full.queues_by_id[queue_id]
            queue.stragglers = {index: twin.stragglers[index] for index in stragglers[queue_id]}
        for event, place in self.recorder.events[at:]:
            machine.apply(event, place)
        compare(self.machine, machine, self.now_ns)
        self.machine = machine

    # Checks.

    def _queues(self) -> list[Queue]:
        return list(self.machine.queues.values())

    def check(self) -> None:
        queue = self.queue
        for reader in queue.subscriptions.values():
            check_reader(reader, self._naive(reader), self.now_ns)
            for index in self._naive(reader).unsettled:
                assert queue.holds(index), f"{index} is gone, but {reader.name} needs it"
        for _, index in self.naive.letters.values():
            assert queue.holds(index), f"{index} is gone, but it is a dead letter"
        assert dead_letters.letters_of(queue, None) == sorted(self.naive.letters)
        assert set(queue.subscriptions) == set(self.naive.subscriptions)
        for naive in self.naive.subscriptions.values():
            if naive.config.on_dead_parent == "cascade":
                given_up = {index for parent in naive.parents for index in parent.dead}
                assert naive.held & given_up <= naive.revived

    def _replayed(self, count: int | None = None) -> Machine:
        machine = Machine(journal=self.recorder, rng=Random(1))
        for event, place in self.recorder.events[:count]:
            machine.apply(event, place)
        return machine


COMMANDS: dict[str, Callable[[History, int, int, int], None]] = {
    function.__name__: function
    for function in (
        History.publish,
        History.receive,
        History.poll,
        History.ask_again,
        History.ack,
        History.ack_up_to,
        History.nack,
        History.give_back,
        History.extend,
        History.pass_time,
        History.tick,
        History.seek,
        History.subscribe,
        History.unsubscribe,
        History.rewire,
        History.change_policy,
        History.limit,
        History.pause,
        History.purge,
        History.change_retention,
        History.replay,
        History.discard,
        History.consume_letters,
        History.release,
        History.recover,
        History.take_snapshot,
        History.restore,
    )
}

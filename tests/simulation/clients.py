"""The clients: every call that they can make, told to the checker before and after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from penstock.broker import Broker
from penstock.core import definitions
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.dead_letters import letters_of
from penstock.core.events import Delivered, Event, Polled
from penstock.core.limits import NANOSECONDS
from penstock.core.machine import Journal, Place
from penstock.core.message import Delivery
from penstock.core.publishing import prepare
from penstock.core.queue import Queue
from penstock.core.settling import Outcome
from penstock.core.subscription import Subscription
from penstock.errors import (
    Conflict,
    DiskFull,
    InvalidRequest,
    NotFound,
    StorageClosed,
    StorageFailed,
)
from penstock.storage import base
from penstock.storage.embedded import EmbeddedStore
from penstock.storage.wal.store import WalStore
from tests.simulation.checker import Checker
from tests.simulation.history import Call, History, Violation
from tests.simulation.reader import Range, Reader, Trail
from tests.simulation.sent import Sent

T = TypeVar("T")

_REFUSALS = (Conflict, DiskFull, InvalidRequest, NotFound)


class Unanswered(Exception):
    """The call was refused, or it is not known what became of it."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A delivery in the hands of a client."""

    queue: str
    subscription: str
    subscription_id: int
    salt: int
    index: int
    receipt: str
    id: str
    is_letter: bool


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A publish with an idempotency key that was not answered."""

    salt: int
    key: str
    call: Call
    messages: list[Sent]


class Clients:
    """Talk to one store at a time; what they hold they keep when it is started again."""

    def __init__(self, history: History, checker: Checker) -> None:
        self.history = history
        self.checker = checker
        self.store: EmbeddedStore
        self.has_failed = False  # the store said so: it must not accept anything any more
        self.holdings: list[Holding] = []
        self.unanswered: list[Attempt] = []

    def use(self, store: EmbeddedStore) -> None:
        self.store = store
        self.has_failed = False
        store.machine.journal = _Effects(store.machine.journal, self.history)

    def _ask(self, what: str) -> Call:
        call = self.history.ask(what)
        # A store's time does not run backwards when the clock does.
        call.asked_ns = max(call.asked_ns, self.store.machine.now_ns)
        return call

    async def _wait(self, call: Call, answer: Awaitable[T], *, writes: bool = True) -> T:
        had_failed = self.has_failed
        try:
            result = await answer
        except _REFUSALS as exc:
            self.history.refuse(call, exc)
            raise Unanswered from exc
        except StorageClosed as exc:
            self.history.give_up(call, exc)
            raise Unanswered from exc
        except StorageFailed as exc:
            self.history.give_up(call, exc)
            self.has_failed = True
            if not writes:
                raise Violation("read-only", f"{call.what} was refused: {exc}") from exc
            raise Unanswered from exc
        if had_failed and writes and result != []:
            raise Violation("read-only", f"{call.what} was accepted after a failure")
        return result

    # Publish and receive.

    async def publish(
        self, queue: Queue, make: Callable[[Call], list[Sent]], key: str | None
    ) -> None:
        call = self._ask(f"publish {queue.name} ")
        messages = make(call)
        self.checker.sent.update((sent.number, sent) for sent in messages)
        salt = queue.salt
        try:
            await self._publish(queue.name, call, messages, key)
        finally:
            if key is not None and call.answered is None and not call.refused:
                attempt = Attempt(salt=salt, key=key, call=call, messages=messages)
                self.unanswered.append(attempt)

    async def publish_again(self, queue: Queue, attempt: Attempt) -> None:
        """Perhaps while the first attempt is still under way, or after it was done."""
        call = self._ask(f"publish {queue.name} once more {attempt.key} ")
        await self._publish(queue.name, call, attempt.messages, attempt.key)

    async def _publish(self, queue: str, call: Call, messages: list[Sent], key: str | None) -> None:
        batch = prepare([sent.new_message() for sent in messages])
        if key is not None:
            batch = batch.with_key(key)
        result = await self._wait(call, self.store.publish(queue, batch))
        numbers = ", ".join(
            f"{sent.number}{' again' if entry.duplicate else ''} at {entry.index}"
            for sent, entry in zip(messages, result, strict=True)
        )
        self.history.answer(call, numbers)
        self.checker.published(call, messages, result, is_keyed=key is not None)

    async def receive(
        self, subscription: Subscription, limit: int, lease_seconds: float | None
    ) -> list[Delivery]:
        queue, name = subscription.queue.name, subscription.name
        call = self._ask(f"receive {queue}/{name} {limit}")
        before = list(subscription.parents)
        wanted = base.Next(limit=limit, lease_seconds=lease_seconds)
        answer = self.store.receive(queue, name, wanted)
        deliveries = await self._wait(call, answer)
        # It may have been decided before they were changed, or after it.
        parents = [parent for parent in before if parent in subscription.parents]
        self._take(call, subscription, parents, deliveries)
        if subscription.queue.source is None:
            self.checker.check_order(call, f"{queue}/{name}", deliveries)
        return deliveries

    async def poll(self, subscription: Subscription, start: int, count: int) -> None:
        queue, name = subscription.queue.name, subscription.name
        call = self._ask(f"poll {queue}/{name} from {start} count {count}")
        parents = list(subscription.parents)
        wanted = base.Poll(start=start, count=count)
        deliveries = await self._wait(call, self.store.receive(queue, name, wanted))
        self._take(call, subscription, parents, deliveries)

    async def ask_again(self, subscription: Subscription, index: int) -> None:
        queue, name = subscription.queue.name, subscription.name
        call = self._ask(f"ask again {queue}/{name} {index}")
        parents = list(subscription.parents)
        # The former lease ends just before this call leases the message anew.
        ender = Call(what=call.what, asked=call.asked - 1, asked_ns=call.asked_ns)
        reader = self.checker.reader(subscription)
        reader.max_deliveries = None  # whoever asks for it gets it, however often
        reader.trails[index].enders.append(ender)
        try:
            wanted = base.Again(index=index)
            deliveries = await self._wait(call, self.store.receive(queue, name, wanted))
        except Unanswered:
            ender.refused = call.refused
            raise
        self._take(call, subscription, parents, deliveries)
        ender.answered = call.asked

    def _take(
        self,
        call: Call,
        subscription: Subscription,
        parents: Sequence[Subscription],
        deliveries: Sequence[Delivery],
    ) -> None:
        got = ", ".join(f"{d.index} as {d.receipt} ({d.deliveries})" for d in deliveries)
        self.history.answer(call, got or "nothing")
        effects = self.store.machine.journal
        assert isinstance(effects, _Effects)
        for delivery in deliveries[:1]:
            call.asked, call.asked_ns = effects.found[subscription.id, delivery.epoch]
        self.checker.delivered(call, subscription, parents, deliveries)
        self.holdings += [
            Holding(
                queue=subscription.queue.name,
                subscription=subscription.name,
                subscription_id=subscription.id,
                salt=d.salt,
                index=d.index,
                receipt=d.receipt,
                id=d.id,
                is_letter=d.dead_letter is not None,
            )
            for d in deliveries
        ]

    # Settle.

    async def ack(self, holdings: Sequence[Holding], *, by_id: bool) -> None:
        """Of one subscription."""
        first = holdings[0]
        subscription = self.store.machine.subscription(first.queue, first.subscription)
        targets = {h.id if by_id else h.receipt: h for h in holdings}
        call = self._ask(f"ack {first.queue}/{first.subscription} {' '.join(targets)}")
        reader = self.checker.reader(subscription)
        for holding in targets.values():
            trail = reader.trails[holding.index]
            trail.acks.append(call)
            trail.enders.append(call)
            if holding.is_letter:
                self._discarding(call, subscription.queue, [holding.index])
        outcomes = await self._settle(call, subscription, base.Ack(targets=list(targets)))
        for (target, holding), outcome in zip(targets.items(), outcomes, strict=True):
            if outcome in (Outcome.DONE, Outcome.ALREADY_SETTLED):
                receipt = None if by_id else target
                reader.settled(call, holding.index, receipt, done=outcome is Outcome.DONE)
            else:
                _withdraw(call, reader.trails[holding.index])

    async def nack(self, holdings: Sequence[Holding], delay_seconds: float | None) -> None:
        first = holdings[0]
        subscription = self.store.machine.subscription(first.queue, first.subscription)
        targets = {h.receipt: h for h in holdings}
        call = self._ask(f"nack {first.queue}/{first.subscription} {' '.join(targets)}")
        reader = self.checker.reader(subscription)
        for holding in targets.values():
            reader.trails[holding.index].enders.append(call)
        nack = base.Nack(targets=list(targets), delay_seconds=delay_seconds, reason="told to")
        outcomes = await self._settle(call, subscription, nack)
        for holding, outcome in zip(targets.values(), outcomes, strict=True):
            if outcome is not Outcome.DONE:
                _withdraw(call, reader.trails[holding.index])

    async def give_back(self, holdings: Sequence[Holding]) -> None:
        first = holdings[0]
        subscription = self.store.machine.subscription(first.queue, first.subscription)
        targets = {h.receipt: h for h in holdings}
        call = self._ask(f"give back {first.queue}/{first.subscription} {' '.join(targets)}")
        reader = self.checker.reader(subscription)
        for holding in targets.values():
            trail = reader.trails[holding.index]
            trail.enders.append(call)
            trail.returns.append(call)
        outcomes = await self._settle(call, subscription, base.GiveBack(targets=list(targets)))
        for holding, outcome in zip(targets.values(), outcomes, strict=True):
            if outcome is not Outcome.DONE:
                _withdraw(call, reader.trails[holding.index])

    async def extend(self, holdings: Sequence[Holding], seconds: float) -> None:
        first = holdings[0]
        subscription = self.store.machine.subscription(first.queue, first.subscription)
        targets = {h.receipt: h for h in holdings}
        call = self._ask(f"extend {first.queue}/{first.subscription} {' '.join(targets)}")
        reader = self.checker.reader(subscription)
        until_ns = call.asked_ns + round(seconds * NANOSECONDS)
        for holding in targets.values():
            reader.extending(holding.index, holding.receipt, until_ns)
        extend = base.Extend(targets=list(targets), seconds=seconds)
        outcomes = await self._settle(call, subscription, extend)
        for holding, outcome in zip(targets.values(), outcomes, strict=True):
            if outcome is Outcome.DONE:
                reader.extended(holding.index, holding.receipt, until_ns)

    async def ack_up_to(self, subscription: Subscription, index: int) -> None:
        call = self._ask(f"ack up to {subscription.queue.name}/{subscription.name} {index}")
        stop = min(index, subscription.queue.next)
        certain = not subscription.parents
        ranges = self.checker.reader(subscription).ranges
        ranges.append(Range(call=call, stop=stop, certain=certain))
        if subscription.queue.source is not None:
            self._discarding(call, subscription.queue, range(subscription.queue.first, stop))
        await self._settle(call, subscription, base.AckUpTo(index=index))

    async def _settle(
        self, call: Call, subscription: Subscription, settlement: base.Settlement
    ) -> Sequence[Outcome]:
        answer = self.store.settle(subscription.queue.name, subscription.name, [settlement])
        outcomes = (await self._wait(call, answer))[0]
        self.history.answer(call, " ".join(outcome.value for outcome in outcomes) or "nothing")
        return outcomes

    # Dead letters and dependencies.

    async def redrive(
        self, queue: Queue, action: Literal["replay", "discard"], ids: Sequence[str] | None
    ) -> None:
        call = self._ask(f"{action} {queue.name} {'all' if ids is None else ' '.join(ids)}")
        wanted = base.Replay(ids=ids) if action == "replay" else base.Discard(ids=ids)
        letters = queue.dead_letters
        indexes = letters_of(queue, ids)
        if letters is not None and action == "discard":
            self._discarding(call, letters, indexes)
        elif letters is not None:
            for reader, index in self._origins(letters, indexes):
                reader.trails[index].revivals.append(call)
        count = await self._wait(call, self.store.operate(queue.name, wanted))
        self.history.answer(call, str(count))

    def _discarding(self, call: Call, letters: Queue, indexes: Sequence[int]) -> None:
        for reader, index in self._origins(letters, indexes):
            reader.trails[index].discards.append(call)

    def _origins(self, letters: Queue, indexes: Sequence[int]) -> list[tuple[Reader, int]]:
        subscriptions = self.store.machine.subscriptions
        origins = [letters.letter(index) for index in indexes if index < letters.next]
        return [
            (self.checker.reader(subscriptions[origin.subscription_id]), origin.index)
            for origin in origins
            if origin.subscription_id in subscriptions
        ]

    async def release(self, subscription: Subscription, index: int) -> None:
        queue, name = subscription.queue.name, subscription.name
        call = self._ask(f"release {queue}/{name} {index}")
        trail = self.checker.reader(subscription).trails[index]
        trail.releases.append(call)
        try:
            action = base.Release(subscription=name, indexes=[index])
            await self._wait(call, self.store.operate(queue, action))
        except Unanswered:
            if call.refused:
                trail.releases.remove(call)
            raise
        self.history.answer(call)

    async def purge(self, queue: Queue) -> None:
        call = self._ask(f"purge {queue.name}")
        found = self.store.machine.queues.get(queue.name)
        for subscription in () if found is None else found.subscriptions.values():
            purged = Range(call=call, stop=subscription.queue.next)
            self.checker.reader(subscription).ranges.append(purged)
        count = await self._wait(call, self.store.operate(queue.name, base.Purge()))
        self.history.answer(call, f"{count} purged")

    # Look.

    async def read(self, queue: Queue, start: int, limit: int) -> None:
        call = self._ask(f"read {queue.name} from {start} limit {limit}")
        answer = self.store.read(queue.name, base.Span(start=start, limit=limit))
        messages = await self._wait(call, answer, writes=False)
        self.history.answer(call, f"{len(messages)} messages")
        for message in messages:
            self.checker.identify(message)

    async def find(self, queue: Queue, id: str) -> None:
        call = self._ask(f"find {queue.name} {id}")
        messages = await self._wait(call, self.store.read(queue.name, [id]), writes=False)
        self.history.answer(call, " ".join(str(found.index) for found in messages) or "nothing")
        for found in messages:
            self.checker.identify(found)
            if found.id != id:
                raise Violation("stable ids", f"{id} found {found.id}", [queue.name])

    async def dead_letters(self, queue: Queue) -> None:
        call = self._ask(f"dead letters {queue.name} ")
        answer = Broker(self.store).dead_letters(queue.name)
        letters = await self._wait(call, answer, writes=False)
        self.history.answer(call, f"{len(letters)} letters")
        for letter in letters:
            self.checker.identify(letter)

    async def stats(self, queue: Queue) -> None:
        call = self._ask(f"stats {queue.name} ")
        stats = await self._wait(call, self.store.queue_stats(queue.name), writes=False)
        self.history.answer(call)
        for one in stats.subscriptions:
            parts = (one.ready, one.in_flight, one.delayed, one.parked, one.held)
            if min(parts) < 0:
                raise Violation("stats", f"{queue.name}/{one.name}: {parts}", [queue.name])

    # Define.

    async def define(self, change: base.Change) -> Call:
        words = [str(value) for value in _values_of(change)]
        call = self._ask(f"{type(change).__name__} {' '.join(words)}")
        self._expect(call, change)
        await self._wait(call, self.store.define(change))
        self.history.answer(call)
        return call

    def _expect(self, call: Call, change: base.Change) -> None:
        """What a definition may end or begin."""
        queue = self.store.machine.queues.get(change.queue)
        if queue is None:
            return
        checker = self.checker
        match change:
            case base.DeleteQueue():
                checker.deleted_queues[queue.salt] = call
            case base.DeleteSubscription(subscription=name) if name in queue.subscriptions:
                checker.deleted_readers[queue.subscriptions[name].id] = call
            case base.AlterSubscription(subscription=name) if name in queue.subscriptions:
                checker.reader(queue.subscriptions[name]).max_deliveries = None
            case base.Seek(subscription=name, start=start) if name in queue.subscriptions:
                stop = definitions.resolve_start(queue, start)
                reader = checker.reader(queue.subscriptions[name])
                reader.seeks.append(Range(call=call, stop=stop))
            case _:
                pass

    async def create_queue(self, name: str, config: QueueConfig) -> None:
        await self.define(base.CreateQueue(queue=name, config=config))

    async def create_subscription(
        self, queue: str, name: str, config: SubscriptionConfig, start: str | int
    ) -> None:
        await self.define(
            base.CreateSubscription(queue=queue, subscription=name, config=config, start=start)
        )

    async def tick(self) -> None:
        call = self._ask("tick")
        await self._wait(call, self.store.tick())
        self.history.answer(call)

    async def checkpoint(self, store: WalStore) -> None:
        call = self._ask("checkpoint")
        await self._wait(call, store.checkpoint())
        self.history.answer(call)


def _values_of(change: base.Change) -> list[Any]:
    return [getattr(change, name) for name in change.__struct_fields__]


class _Effects(Journal):
    """When each delivery took effect: a receive may be decided some time after it was asked for."""

    def __init__(self, journal: Journal, history: History) -> None:
        self._journal = journal
        self._history = history
        self.found: dict[tuple[int, int], tuple[float, int]] = {}  # by subscription and epoch

    def append(self, event: Event) -> Place:
        if isinstance(event, Delivered | Polled):
            key = event.subscription_id, event.epoch
            self.found[key] = self._history.moment - 0.5, event.at_ns
        return self._journal.append(event)


def _withdraw(call: Call, trail: Trail) -> None:
    """The call was told that it did nothing to this message."""
    for calls in (trail.acks, trail.enders, trail.returns):
        if call in calls:
            calls.remove(call)

"""Which call comes next: every kind of them, on what there is at the moment."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from random import Random
from typing import Any

from penstock.core.config import DEFAULT_SUBSCRIPTION, QueueConfig, SubscriptionConfig
from penstock.core.limits import NANOSECONDS
from penstock.core.message import to_datetime
from penstock.core.queue import Queue
from penstock.core.retry import Backoff
from penstock.core.subscription import Subscription
from penstock.storage import base
from penstock.storage.wal.store import WalStore
from tests.simulation.clients import Clients, Holding
from tests.simulation.history import Call
from tests.simulation.sent import FILTERS, Sent

Action = Coroutine[Any, Any, Any]

_QUEUES = ["apples", "pears", "plums"]
_SUBSCRIPTIONS = ["a", "b", "c", "d"]
_START_QUEUES = 2
# Well within the time that a queue remembers a key, whatever the clock does meanwhile.
_PATIENCE_NS = 150 * NANOSECONDS


class Workload:
    """Draws from ``rng`` alone, so a seed always makes the same calls."""

    def __init__(self, rng: Random, clients: Clients) -> None:
        self.rng = rng
        self.clients = clients
        self._last_number = 0
        weighted: list[tuple[int, Callable[[], Action | None]]] = [
            (260, self._publish),
            (15, self._publish_again),
            (260, self._receive),
            (170, self._ack),
            (20, self._ack_by_id),
            (60, self._nack),
            (30, self._give_back),
            (30, self._extend),
            (10, self._ack_up_to),
            (25, self._poll),
            (20, self._ask_again),
            (25, self._replay),
            (12, self._discard),
            (25, self._release),
            (20, self._read),
            (10, self._find),
            (10, self._dead_letters),
            (15, self._stats),
            (50, self._tick),
            (8, self._checkpoint),
            (12, self._seek),
            (15, self._pause),
            (15, self._alter_after),
            (10, self._alter_limits),
            (8, self._alter_queue),
            (3, self._purge),
            (15, self._create_subscription),
            (5, self._delete_subscription),
            (4, self._create_queue),
            (2, self._delete_queue),
        ]
        self._actions = [action for _, action in weighted]
        self._weights = [weight for weight, _ in weighted]

    def begin(self) -> list[Action]:
        """The calls that make the first queues and subscriptions."""
        actions = []
        for name in _QUEUES[:_START_QUEUES]:
            actions.append(self.clients.create_queue(name, self._queue_config()))
            names = [DEFAULT_SUBSCRIPTION]
            for subscription in _SUBSCRIPTIONS[: self.rng.randint(1, 4)]:
                config = self._subscription_config(names)
                actions.append(
                    self.clients.create_subscription(name, subscription, config, "earliest")
                )
                names.append(subscription)
        return actions

    def next(self) -> Action | None:
        """A call on something that exists; None when there is nothing for the one drawn."""
        return self.rng.choices(self._actions, self._weights)[0]()

    # What there is.

    def _queue(self) -> Queue | None:
        machine = self.clients.store.machine
        queues = [q for q in machine.queues.values() if q.source is None and q.events_of is None]
        return self.rng.choice(queues) if queues else None

    def _subscription(self) -> Subscription | None:
        queue = self._queue()
        if queue is None:
            return None
        if queue.dead_letters is not None and self.rng.random() < 0.05:
            queue = queue.dead_letters
        return self.rng.choice(list(queue.subscriptions.values()))

    def _holdings(self) -> list[Holding]:
        """Some of what the clients hold on one subscription, mostly the newest."""
        holdings = self.clients.holdings
        if not holdings:
            return []
        subscriptions = self.clients.store.machine.subscriptions
        recent = holdings[-20:] if self.rng.random() < 0.9 else holdings
        one = self.rng.choice(recent)
        if one.subscription_id not in subscriptions:
            return []
        same = [h for h in recent if h.subscription_id == one.subscription_id and h != one]
        return [one, *self.rng.sample(same, self.rng.randint(0, min(3, len(same))))]

    def _index(self, queue: Queue) -> int:
        return self.rng.randint(max(0, queue.first - 2), queue.next)

    # Messages.

    def _publish(self) -> Action | None:
        queue = self._queue()
        if queue is None:
            return None
        count = 1 if self.rng.random() < 0.6 else self.rng.randint(2, 6)

        def make(call: Call) -> list[Sent]:
            return [self._message(queue, call, has_key=key is None) for _ in range(count)]

        key = None
        if self.rng.random() < 0.3:
            key = f"request-{self._last_number}"
        return self.clients.publish(queue, make, key)

    def _publish_again(self) -> Action | None:
        """Somebody who got no answer tries again, in time."""
        clients = self.clients
        queue = self._queue()
        if queue is None:
            return None
        since_ns = clients.history.clock.now_ns() - _PATIENCE_NS
        unanswered = [
            attempt
            for attempt in clients.unanswered
            if attempt.salt == queue.salt and attempt.call.asked_ns > since_ns
        ]
        return clients.publish_again(queue, self.rng.choice(unanswered)) if unanswered else None

    def _message(self, queue: Queue, call: Call, *, has_key: bool) -> Sent:
        rng = self.rng
        self._last_number += 1
        is_plain = rng.random() < 0.4
        delay = rng.choice([0.5, 5, 60]) if not is_plain and rng.random() < 0.15 else 0
        ttl = rng.choice([1, 20, 200]) if not is_plain and rng.random() < 0.06 else None
        dedup_key = None if is_plain or rng.random() < 0.8 else f"k{rng.randint(0, 20)}"
        return Sent(
            number=self._last_number,
            queue=queue.name,
            call=call,
            topic=None if is_plain else rng.choice([None, "red", "blue"]),
            color=None if is_plain else rng.choice([None, "green", "grey"]),
            kind=rng.randint(0, 4),
            priority=0 if is_plain or rng.random() < 0.7 else rng.randint(1, 10),
            group=None if is_plain or rng.random() < 0.4 else rng.choice("xyz"),
            dedup_key=dedup_key if has_key else None,
            not_before_ns=call.asked_ns + round(delay * NANOSECONDS) if delay else None,
            expires_at_ns=call.asked_ns + round((delay + ttl) * NANOSECONDS) if ttl else None,
            padding=rng.choice([0, 10, 100, 400, 2500]),
        )

    def _receive(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        limit = self.rng.choice([1, 1, 3, 10])
        lease_seconds = self.rng.choice([None, None, None, 0.5, 40])
        return self.clients.receive(subscription, limit, lease_seconds)

    def _poll(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        start = self.rng.choice([subscription.cursor, self._index(subscription.queue)])
        return self.clients.poll(subscription, start, self.rng.randint(1, 8))

    def _ask_again(self) -> Action | None:
        holdings = self._holdings()
        if not holdings:
            return None
        subscription = self.clients.store.machine.subscriptions[holdings[0].subscription_id]
        return self.clients.ask_again(subscription, holdings[0].index)

    def _ack(self) -> Action | None:
        holdings = self._holdings()
        return self.clients.ack(holdings, by_id=False) if holdings else None

    def _ack_by_id(self) -> Action | None:
        holdings = [h for h in self._holdings() if not h.is_letter]
        return self.clients.ack(holdings, by_id=True) if holdings else None

    def _nack(self) -> Action | None:
        holdings = self._holdings()
        delay = self.rng.choice([None, None, 0, 2, 30])
        return self.clients.nack(holdings, delay) if holdings else None

    def _give_back(self) -> Action | None:
        holdings = self._holdings()
        return self.clients.give_back(holdings) if holdings else None

    def _extend(self) -> Action | None:
        holdings = self._holdings()
        return self.clients.extend(holdings, self.rng.choice([1, 30, 90])) if holdings else None

    def _ack_up_to(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        index = min(subscription.floor + self.rng.randint(0, 5), subscription.queue.next)
        return self.clients.ack_up_to(subscription, index)

    # Dead letters and dependencies.

    def _letter_ids(self, queue: Queue) -> list[str] | None:
        """All of them, or those of a few messages."""
        letters = queue.dead_letters
        if letters is None or self.rng.random() < 0.3 or not letters.letter_origins:
            return None
        origins = [index for index in letters.letter_origins if queue.holds(index)]
        return [queue.id_of(index) for index in self.rng.choices(origins, k=2)] if origins else None

    def _replay(self) -> Action | None:
        queue = self._queue()
        if queue is None or queue.dead_letters is None:
            return None
        return self.clients.redrive(queue, "replay", self._letter_ids(queue))

    def _discard(self) -> Action | None:
        queue = self._queue()
        if queue is None or queue.dead_letters is None:
            return None
        return self.clients.redrive(queue, "discard", self._letter_ids(queue))

    def _release(self) -> Action | None:
        subscription = self._subscription()
        held = list(subscription.held()) if subscription is not None else []
        if subscription is None or not held:
            return None
        return self.clients.release(subscription, self.rng.choice(held)[0])

    # Look.

    def _read(self) -> Action | None:
        queue = self._queue()
        return self.clients.read(queue, self._index(queue), 10) if queue else None

    def _find(self) -> Action | None:
        holdings = [h for h in self._holdings() if not h.is_letter]
        queue = self.clients.store.machine.queues.get(holdings[0].queue) if holdings else None
        return self.clients.find(queue, holdings[0].id) if queue else None

    def _dead_letters(self) -> Action | None:
        queue = self._queue()
        return self.clients.dead_letters(queue) if queue else None

    def _stats(self) -> Action | None:
        queue = self._queue()
        return self.clients.stats(queue) if queue else None

    def _tick(self) -> Action:
        return self.clients.tick()

    def _checkpoint(self) -> Action | None:
        store = self.clients.store
        return self.clients.checkpoint(store) if isinstance(store, WalStore) else None

    # Define.

    def _queue_config(self) -> QueueConfig:
        rng = self.rng
        return QueueConfig(
            fifo=rng.random() < 0.4,
            max_messages=rng.choice([None, None, None, 30]),
            max_bytes=rng.choice([None, None, None, 20_000]),
            retention_seconds=rng.choice([86_400, 86_400, 60, 300]),
            retention_messages=rng.choice([None, None, 0, 10, 25]),
            retain_unsettled=rng.random() < 0.9,
            message_ttl_seconds=rng.choice([None, None, None, None, 400]),
            events=rng.random() < 0.4,
        )

    def _subscription_config(self, names: list[str]) -> SubscriptionConfig:
        rng = self.rng
        after = rng.sample(names, min(len(names), rng.choice([0, 0, 1, 1, 2])))
        return SubscriptionConfig(
            filter=rng.choice([None, None, *FILTERS]),
            after=tuple(after),
            on_dead_parent=rng.choice(["hold", "hold", "cascade", "ignore"]),
            lease_seconds=rng.choice([10, 30, 30, 60, None]),
            max_in_flight=rng.choice([3, 10, 100]),
            max_deliveries=rng.choice([1, 2, 3, None]),
            backoff=Backoff(base_seconds=rng.choice([0, 0, 4]), jitter=rng.choice([0, 0.5])),
        )

    def _seek(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        queue = subscription.queue
        moment = to_datetime(self.clients.history.clock.now_ns() - 30 * NANOSECONDS)
        starts: list[str | int | datetime] = ["earliest", "latest", self._index(queue), moment]
        start = self.rng.choice(starts)
        return self.clients.define(
            base.Seek(queue=queue.name, subscription=subscription.name, start=start)
        )

    def _alter(self, subscription: Subscription, **changes: Any) -> Action:
        return self.clients.define(
            base.AlterSubscription(
                queue=subscription.queue.name, subscription=subscription.name, changes=changes
            )
        )

    def _pause(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        is_paused = not subscription.config.paused and self.rng.random() < 0.5
        return self._alter(subscription, paused=is_paused)

    def _alter_after(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        names = list(subscription.queue.subscriptions)
        after = self.rng.sample(names, min(len(names), self.rng.randint(0, 2)))
        return self._alter(subscription, after=tuple(after))

    def _alter_limits(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None:
            return None
        if subscription.queue.source is not None:
            return self._alter(subscription, lease_seconds=self.rng.choice([5, 30]))
        return self._alter(
            subscription,
            max_deliveries=self.rng.choice([1, 3, None]),
            max_in_flight=self.rng.choice([2, 20]),
        )

    def _alter_queue(self) -> Action | None:
        queue = self._queue()
        if queue is None:
            return None
        changes = {
            "max_messages": self.rng.choice([None, 40]),
            "retention_messages": self.rng.choice([None, 0, 15]),
        }
        return self.clients.define(base.AlterQueue(queue=queue.name, changes=changes))

    def _purge(self) -> Action | None:
        queue = self._queue()
        return self.clients.purge(queue) if queue else None

    def _create_subscription(self) -> Action | None:
        queue = self._queue()
        if queue is None:
            return None
        config = self._subscription_config(list(queue.subscriptions))
        starts: list[str | int] = ["earliest", "latest", self._index(queue)]
        start = self.rng.choice(starts)
        name = self.rng.choice(_SUBSCRIPTIONS)
        return self.clients.create_subscription(queue.name, name, config, start)

    def _delete_subscription(self) -> Action | None:
        subscription = self._subscription()
        if subscription is None or subscription.name == DEFAULT_SUBSCRIPTION:
            return None
        return self.clients.define(
            base.DeleteSubscription(queue=subscription.queue.name, subscription=subscription.name)
        )

    def _create_queue(self) -> Action:
        return self.clients.create_queue(self.rng.choice(_QUEUES), self._queue_config())

    def _delete_queue(self) -> Action | None:
        queue = self._queue()
        return self.clients.define(base.DeleteQueue(queue=queue.name)) if queue else None

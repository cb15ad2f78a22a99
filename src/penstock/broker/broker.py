"""The broker: one method for each thing a user can do, over any storage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec.structs import asdict

from penstock.broker.arguments import (
    check_ids,
    check_names,
    check_settlements,
    check_targets,
    make_config,
)
from penstock.broker.callbacks import Callbacks, new_secret, with_states
from penstock.broker.existing import check_queue, check_subscription
from penstock.broker.long_poll import LongPolls
from penstock.core.callback import CallbackTarget
from penstock.core.config import (
    DEFAULT_SUBSCRIPTION,
    QueueConfig,
    SubscriptionConfig,
    check_list,
    check_seconds,
    check_text,
    check_whole,
)
from penstock.core.filter_test import FilterTest
from penstock.core.filters import compile_filter, try_filter
from penstock.core.graph import Graph, HeldMessage, graph_of
from penstock.core.limits import DEAD_LETTER_SUFFIX, MAX_BATCH_BYTES
from penstock.core.message import (
    Delivery,
    Message,
    NewMessage,
    ViewedMessage,
    parse_message_id,
    without_state,
)
from penstock.core.publishing import NewBatch, PublishResult, prepare
from penstock.core.settling import Outcome, Target
from penstock.core.stats import (
    DefinedSubscription,
    EnsuredQueue,
    EnsuredSubscription,
    KnownStats,
    QueueStats,
    SubscriptionStats,
)
from penstock.errors import (
    InvalidArgument,
    MessageNotFound,
    QueueExists,
    SubscriptionExists,
)
from penstock.storage import base
from penstock.storage.base import Store
from penstock.storage.block import Chunk
from penstock.storage.shared import Shared

__all__ = ["Broker"]

# Messages that are read at a time to try a filter on them.
_TEST_CHUNK = 64


class Broker:
    """Publishes, delivers and settles. Close it, or use it as an async context manager.

    A method that takes many things takes them as one batch: one answer, one sync of the disk.
    Errors are those of `penstock.errors`; each has a stable `code`. An argument of the wrong type
    is refused, too, before anything has changed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._polls = LongPolls(store)
        self._callbacks: Callbacks | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what was accepted and let go of the store. Idempotent."""
        await self._store.close()

    def stop_waiting(self) -> None:
        """End the receives that wait, with nothing. Later ones do not wait. For a shutdown."""
        self._polls.stop()

    @property
    def durability(self) -> base.Durability:
        """What an answered write survives: ``memory``, ``fsync`` or ``replicated``."""
        return self._store.durability

    @property
    def problem(self) -> str | None:
        """Why writes are refused, if they are. What was stored before can still be read."""
        return self._store.problem

    @property
    def services(self) -> Mapping[str, str | None]:
        """The other servers that the store needs, each with why it is away, or None."""
        return self._store.services

    @property
    def shared(self) -> Shared | None:
        """What the servers of the store share besides messages; None if there is only one."""
        return self._store.shared

    async def _define(self, change: base.Change) -> None:
        await self._store.define(change)
        if self._callbacks is not None:
            self._callbacks.definitions_changed(change.queue)

    # Queues.

    async def create_queue(
        self,
        /,
        name: str,
        config: QueueConfig | None = None,
        *,
        default: SubscriptionConfig | None = None,
        **settings: Any,
    ) -> QueueStats:
        """Create a queue, with its subscription ``default``. Settings are those of `QueueConfig`.

        ``default`` has the settings of that subscription, which it has from the beginning. It can
        have neither a filter nor a callback, and wait for no other. Raises `QueueExists`.
        """
        check_names(name)
        await self._define(
            base.CreateQueue(
                queue=name,
                config=make_config(QueueConfig, config, settings),
                default=SubscriptionConfig() if default is None else default,
            )
        )
        return await self.queue_stats(name)

    async def ensure_queue(
        self, /, name: str, config: QueueConfig | None = None, **settings: Any
    ) -> EnsuredQueue:
        """Create a queue if there is none of that name; returns the queue, new or not.

        A queue that exists stays as it is. Raises `QueueExists` when it has other values for these
        settings.
        """
        with suppress(QueueExists):
            made = await self.create_queue(name, make_config(QueueConfig, config, settings))
            return EnsuredQueue(**asdict(made), is_new=True)
        found = await self.queue_stats(name)
        check_queue(found, settings if config is None else asdict(config))
        return EnsuredQueue(**asdict(found), is_new=False)

    async def alter_queue(self, /, name: str, **settings: Any) -> QueueStats:
        """Change some settings, and return the queue as it is now. The others stay as they are."""
        check_names(name)
        await self._define(base.AlterQueue(queue=name, changes=settings))
        return await self.queue_stats(name)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, subscriptions and dead letters."""
        check_names(name)
        await self._define(base.DeleteQueue(queue=name))

    async def purge_queue(self, name: str) -> int:
        """Remove every message, for every subscription; returns how many. Dead letters stay.

        So do the messages that dead letters refer to, which are not counted.
        """
        check_names(name)
        return await self._store.operate(name, base.Purge())

    async def queues(self, *, after: str | None = None, limit: int = 100) -> list[QueueStats]:
        """A page of queues by name; the next page starts ``after`` the last name of this one."""
        check_whole("limit", limit, 1)
        last = "" if after is None else check_text("after", after)
        return with_states((await self._store.stats(last, limit)).complete(), self._callbacks)

    async def names(self) -> list[str]:
        """Of all queues, sorted, without dead-letter queues."""
        return await self._store.names()

    async def queue_stats(self, name: str, *, only: Sequence[str] | None = None) -> QueueStats:
        """With all its subscriptions, or ``only`` these: a queue may have many."""
        check_names(name)
        if only is not None:
            only = check_list("only", only, "names of subscriptions")
            for subscription in only:
                check_names(name, subscription)
        return with_states([await self._store.queue_stats(name, only)], self._callbacks)[0]

    async def stats(self) -> list[QueueStats]:
        """Of every queue, by name. Raises `StoreUnavailable` if one cannot be looked at."""
        return with_states((await self._store.stats()).complete(), self._callbacks)

    async def known_stats(self) -> KnownStats:
        """Of every queue, as far as it can be looked at, and which cannot."""
        known = await self._store.stats()
        return msgspec.structs.replace(known, queues=with_states(known.queues, self._callbacks))

    # Subscriptions.

    async def create_subscription(
        self,
        /,
        queue: str,
        name: str,
        config: SubscriptionConfig | None = None,
        *,
        start: str | int | datetime = "latest",
        **settings: Any,
    ) -> DefinedSubscription:
        """Create a subscription. Settings are those of `SubscriptionConfig`.

        ``start`` is ``"earliest"``, ``"latest"``, an index or a time. With a callback, the answer
        has the secret that signs its calls; it is never shown again.
        """
        check_names(queue, name)
        made = make_config(SubscriptionConfig, config, settings)
        secret = None if made.callback is None else new_secret()
        await self._define(
            base.CreateSubscription(
                queue=queue,
                subscription=name,
                config=made,
                start=start,
                secret=secret,
            )
        )
        stats = await self.subscription_stats(queue, name)
        return DefinedSubscription(**asdict(stats), secret=secret)

    async def ensure_subscription(
        self,
        /,
        queue: str,
        name: str,
        config: SubscriptionConfig | None = None,
        *,
        start: str | int | datetime = "latest",
        **settings: Any,
    ) -> EnsuredSubscription:
        """Create a subscription if there is none of that name; returns it, new or not.

        One that exists stays as it is: where it is, and paused if it is. Raises
        `SubscriptionExists` when its settings differ; those that are left out count as the
        defaults.
        """
        wanted = make_config(SubscriptionConfig, config, settings)
        with suppress(SubscriptionExists):
            made = await self.create_subscription(queue, name, wanted, start=start)
            return EnsuredSubscription(**asdict(made), is_new=True)
        found = await self.subscription_stats(queue, name)
        check_subscription(found, wanted)
        return EnsuredSubscription(**asdict(found), is_new=False)

    async def alter_subscription(
        self, /, queue: str, name: str, **settings: Any
    ) -> DefinedSubscription:
        """Change some settings, and return the subscription as it is now.

        The answer has a secret if this gives the subscription its first callback.
        """
        secret = await self._alter_subscription(queue, name, settings)
        stats = await self.subscription_stats(queue, name)
        return DefinedSubscription(**asdict(stats), secret=secret)

    async def _alter_subscription(
        self, queue: str, name: str, settings: dict[str, Any]
    ) -> str | None:
        """Returns the secret that signs its callbacks if this gives it its first one."""
        check_names(queue, name)
        secret = None if settings.get("callback") is None else new_secret()
        await self._define(
            base.AlterSubscription(queue=queue, subscription=name, changes=settings, secret=secret)
        )
        if secret is not None:
            for target in await self._store.callbacks(queue):
                if target.subscription == name:
                    return secret if secret in target.secrets else None
        return None

    async def rotate_secret(self, queue: str, name: str) -> str:
        """Make a new secret for its callbacks. The old one signs too, until the next rotation."""
        check_names(queue, name)
        secret = new_secret()
        await self._define(base.RotateSecret(queue=queue, subscription=name, secret=secret))
        return secret

    async def pause(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        """Deliver nothing until it is resumed. Leases run on."""
        await self._alter_subscription(queue, subscription, {"paused": True})

    async def resume(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        await self._alter_subscription(queue, subscription, {"paused": False})

    async def delete_subscription(self, queue: str, name: str) -> None:
        """Delete a subscription. Messages that waited for it alone are released."""
        check_names(queue, name)
        await self._define(base.DeleteSubscription(queue=queue, subscription=name))

    async def subscriptions(self, queue: str) -> list[SubscriptionStats]:
        """Those of a queue, by name."""
        found = (await self.queue_stats(queue)).subscriptions
        return sorted(found, key=lambda one: one.name)

    async def subscription_stats(
        self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> SubscriptionStats:
        return (await self.queue_stats(queue, only=[subscription])).subscriptions[0]

    async def seek(
        self, queue: str, start: str | int | datetime, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> None:
        """Move a subscription back or forward. Receipts of what is in flight become void."""
        check_names(queue, subscription)
        await self._define(base.Seek(queue=queue, subscription=subscription, start=start))

    async def test_filter(self, queue: str, filter: str, last: int = 100) -> FilterTest:
        """Try a filter on the newest messages. Raises `InvalidFilter`."""
        check_whole("last", last, 1)
        compiled = compile_filter(check_text("filter", filter))
        stats = await self.queue_stats(queue, only=[])
        found = FilterTest(tested=0, matched=[], failed=[])
        at = max(stats.first_index, stats.next_index - last)
        while at < stats.next_index:
            stop = min(at + _TEST_CHUNK, stats.next_index)
            chunk = try_filter(
                compiled, await self._store.read(queue, base.Span(start=at, limit=stop - at))
            )
            found = FilterTest(
                tested=found.tested + chunk.tested,
                matched=found.matched + chunk.matched,
                failed=found.failed + chunk.failed,
            )
            at = stop
            await asyncio.sleep(0)  # let others run: a filter may take a while
        return found

    # Messages.

    async def publish(
        self,
        queue: str,
        messages: Sequence[NewMessage | bytes] | NewBatch,
        *,
        idempotency_key: str | None = None,
    ) -> PublishResult:
        """Store a batch, all or nothing. The result has each index and id, and the durability.

        A second publish with the same ``idempotency_key`` within the queue's dedup window stores
        nothing, and is answered as the first one was.

        A `NewBatch`, which `prepare` makes, can be made in a thread.
        """
        check_names(queue)
        batch = messages if isinstance(messages, NewBatch) else prepare(messages)
        if not batch.bodies:
            raise InvalidArgument("there are no messages in the batch: pass at least one")
        if idempotency_key is not None:
            batch = batch.with_key(idempotency_key)
        return await self._store.publish(queue, batch)

    async def receive(
        self,
        queue: str,
        *,
        subscription: str = DEFAULT_SUBSCRIPTION,
        limit: int = 1,
        wait_seconds: float = 0,
        lease_seconds: float | None = None,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease up to ``limit`` messages, waiting up to ``wait_seconds`` for the first one.

        ``most_bytes`` limits their total size, roughly, but never to less than one message.
        """
        check_names(queue, subscription)
        if wait_seconds != 0:
            check_seconds("wait_seconds", wait_seconds)
        if most_bytes is not None:
            check_whole("most_bytes", most_bytes, 1)
        wanted = base.Next(limit=limit, lease_seconds=lease_seconds, most_bytes=most_bytes)
        deliveries = await self._store.receive(queue, subscription, wanted)
        if deliveries or wait_seconds <= 0:
            return deliveries
        again = partial(self._store.receive, queue, subscription, wanted)
        return await self._polls.receive(again, queue, subscription, wait_seconds)

    async def poll(
        self,
        queue: str,
        subscription: str,
        *,
        start: int,
        count: int,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease messages by index range; see `penstock.core.delivery.poll`."""
        check_names(queue, subscription)
        if most_bytes is not None:
            check_whole("most_bytes", most_bytes, 1)
        wanted = base.Poll(start=start, count=count, most_bytes=most_bytes)
        return await self._store.receive(queue, subscription, wanted)

    async def ask_again(self, queue: str, subscription: str, index: int) -> Delivery:
        """Deliver one particular unsettled message once more."""
        check_names(queue, subscription)
        return (await self._store.receive(queue, subscription, base.Again(index=index)))[0]

    async def settle(
        self,
        queue: str,
        settlements: Sequence[base.Settlement],
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> list[Sequence[Outcome]]:
        """Ack, nack, extend and give back in one go. Returns an outcome for each target."""
        check_names(queue, subscription)
        return await self._store.settle(queue, subscription, check_settlements(settlements))

    async def ack(
        self, queue: str, targets: Sequence[Target], subscription: str = DEFAULT_SUBSCRIPTION
    ) -> list[Outcome]:
        """Say that these are done. Targets are deliveries, receipts or message ids. Idempotent."""
        check_names(queue, subscription)
        settlements = [base.Ack(targets=check_targets(targets))]
        return list((await self._store.settle(queue, subscription, settlements))[0])

    async def ack_up_to(
        self, queue: str, index: int, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> int:
        """Say that everything below an index is done. Returns how many messages that settled."""
        check_names(queue, subscription)
        settlements = [base.AckUpTo(index=index)]
        return len((await self._store.settle(queue, subscription, settlements))[0])

    async def nack(
        self,
        queue: str,
        targets: Sequence[Target],
        subscription: str = DEFAULT_SUBSCRIPTION,
        *,
        delay_seconds: float | None = None,
        reason: str = "",
    ) -> list[Outcome]:
        """Say that these failed: deliver them again, after the backoff or ``delay_seconds``."""
        check_names(queue, subscription)
        settlements = [
            base.Nack(targets=check_targets(targets), delay_seconds=delay_seconds, reason=reason)
        ]
        return list((await self._store.settle(queue, subscription, settlements))[0])

    async def extend(
        self,
        queue: str,
        targets: Sequence[Target],
        seconds: float,
        subscription: str = DEFAULT_SUBSCRIPTION,
        *,
        further: bool = False,
    ) -> list[Outcome]:
        """Let the leases end ``seconds`` from now or, with ``further``, that much later."""
        check_names(queue, subscription)
        settlements = [
            base.Extend(targets=check_targets(targets), seconds=seconds, further=bool(further))
        ]
        return list((await self._store.settle(queue, subscription, settlements))[0])

    async def give_back(
        self, queue: str, targets: Sequence[Target], subscription: str = DEFAULT_SUBSCRIPTION
    ) -> list[Outcome]:
        """Hand back deliveries that nobody has started on: ready again, and not counted."""
        check_names(queue, subscription)
        settlements = [base.GiveBack(targets=check_targets(targets))]
        return list((await self._store.settle(queue, subscription, settlements))[0])

    async def read(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Read messages by index, without touching anybody's progress."""
        check_names(queue)
        check_whole("start", start)
        check_whole("limit", limit, 1)
        return await self._store.read(queue, base.Span(start=start, limit=limit))

    async def scan(
        self, queue: str, start: int, stop: int, *, most_bytes: int = MAX_BATCH_BYTES
    ) -> Chunk:
        """Read an index range in bulk; see `penstock.storage.base.Store.scan`."""
        check_names(queue)
        check_whole("start", start, 0)
        check_whole("stop", stop, 0)
        check_whole("most_bytes", most_bytes, 0)
        return await self._store.scan(queue, start, stop, most_bytes)

    async def view(
        self,
        queue: str,
        subscription: str = DEFAULT_SUBSCRIPTION,
        *,
        settled: bool | None = None,
        start: int = 0,
        limit: int = 100,
    ) -> list[ViewedMessage]:
        """The oldest messages, settled, unsettled or all, with their state for a subscription.

        ``start`` is the index to begin at.
        """
        check_names(queue, subscription)
        check_whole("start", start)
        check_whole("limit", limit, 1)
        if settled is not None and not isinstance(settled, bool):
            raise InvalidArgument(f"settled is {settled!r}: use True, False or None")
        which: base.View = "all" if settled is None else "settled" if settled else "unsettled"
        return await self._store.view(queue, subscription, which, limit, start)

    async def find(self, queue: str, ids: Sequence[str]) -> list[Message | None]:
        """Find messages by id; None for each that the queue does not hold."""
        check_names(queue)
        wanted = check_ids(ids)
        found = await self._store.read(queue, wanted)
        # An id can be written in several ways.
        by_id = {parse_message_id(message.id): message for message in found}
        return [by_id.get(parse_message_id(id)) for id in wanted]

    async def get(self, queue: str, id: str) -> Message:
        """One message by id. Raises `MessageNotFound`."""
        message = (await self.find(queue, [id]))[0]
        if message is None:
            raise MessageNotFound(f"queue {queue!r} holds no message {id!r}")
        return message

    # Callbacks.

    def report_callbacks(self, callbacks: Callbacks | None) -> None:
        """Set who is told of changed definitions, and asked for the state of callbacks."""
        self._callbacks = callbacks

    async def callbacks(self, queue: str | None = None) -> list[CallbackTarget]:
        """The subscriptions that have a callback, with their secrets, to make the calls.

        With ``queue``, those of that queue; none if it does not exist.
        """
        if queue is not None:
            check_names(queue)
        return await self._store.callbacks(queue)

    async def wait(
        self, queue: str, subscription: str, seconds: float, *, beyond: int | None = None
    ) -> int | None:
        """Wait until something may be deliverable, or has arrived; see `Store.wait`."""
        check_names(queue, subscription)
        check_seconds("seconds", seconds)
        if beyond is not None:
            check_whole("beyond", beyond)
        return await self._store.wait(queue, subscription, seconds, beyond)

    # Dead letters and dependencies.

    async def dead_letters(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Messages that failed for good, each with its `dead_letter`."""
        check_names(queue)
        check_whole("start", start)
        check_whole("limit", limit, 1)
        # Most queues have none, and to look for a queue that is not there takes longer than this.
        if not (await self._store.queue_stats(queue, [])).dead_letters:
            return []
        found = await self._store.view(
            queue + DEAD_LETTER_SUFFIX, DEFAULT_SUBSCRIPTION, "unsettled", limit, start
        )
        return [without_state(letter) for letter in found]

    async def replay(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Return dead letters to the subscriptions they failed on: all, or those with these ids."""
        check_names(queue)
        return await self._store.operate(
            queue, base.Replay(ids=None if ids is None else check_ids(ids))
        )

    async def discard(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Remove dead letters for good: all, or those with these ids."""
        check_names(queue)
        return await self._store.operate(
            queue, base.Discard(ids=None if ids is None else check_ids(ids))
        )

    async def held(self, queue: str, subscription: str, limit: int = 100) -> list[int]:
        """Indexes that wait for other subscriptions, lowest first."""
        return [one.index for one in await self.held_messages(queue, subscription, limit)]

    async def held_messages(
        self, queue: str, subscription: str, limit: int = 100
    ) -> list[HeldMessage]:
        """Like `held`, with the subscriptions that each message waits for."""
        check_names(queue, subscription)
        check_whole("limit", limit, 1)
        return await self._store.held(queue, subscription, limit)

    async def graph(self, queue: str) -> Graph:
        """Which subscription waits for which."""
        return graph_of(queue, (await self.queue_stats(queue)).subscriptions)

    async def release(self, queue: str, subscription: str, indexes: Sequence[int]) -> None:
        """Deliver messages that are held, without waiting for the other subscriptions."""
        check_names(queue, subscription)
        indexes = check_list("indexes", indexes, "indexes")
        await self._store.operate(queue, base.Release(subscription=subscription, indexes=indexes))

"""The broker: one method for each thing a user can do, over any storage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from penstock.core.config import DEFAULT_SUBSCRIPTION, QueueConfig, SubscriptionConfig
from penstock.core.message import Delivery, Message, NewMessage, ViewedMessage
from penstock.core.publishing import PublishResult, prepare
from penstock.core.settling import Outcome, Target
from penstock.core.stats import QueueStats
from penstock.errors import InvalidArgument, MessageNotFound, NotLeased
from penstock.storage import base
from penstock.storage.base import Store

__all__ = ["Broker"]


class Broker:
    """Publishes, delivers and settles. Close it, or use it as an async context manager.

    Where a method takes many things, all of them are one batch: one answer, one sync of the disk.
    Errors are those of `penstock.errors`; each has a stable `code`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

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

    @property
    def durability(self) -> base.Durability:
        """What an answered write survives: ``memory``, ``fsync`` or ``replicated``."""
        return self._store.durability

    @property
    def problem(self) -> str | None:
        """Why writes are refused, if they are. What was stored before can still be read."""
        return self._store.problem

    # Queues.

    async def create_queue(
        self, name: str, config: QueueConfig | None = None, **settings: Any
    ) -> None:
        """With its subscription ``default``. Settings are those of `QueueConfig`."""
        await self._store.define(
            base.CreateQueue(queue=name, config=_config(QueueConfig, config, settings))
        )

    async def alter_queue(self, name: str, **settings: Any) -> None:
        await self._store.define(base.AlterQueue(queue=name, changes=settings))

    async def delete_queue(self, name: str) -> None:
        """With its messages, subscriptions and dead letters."""
        await self._store.define(base.DeleteQueue(queue=name))

    async def purge_queue(self, name: str) -> None:
        """Remove every message, for every subscription. Dead letters stay."""
        await self._store.define(base.PurgeQueue(queue=name))

    async def queue_stats(self, name: str) -> QueueStats:
        return (await self._store.stats(name))[0]

    async def stats(self) -> list[QueueStats]:
        """Of every queue, by name."""
        return await self._store.stats()

    # Subscriptions.

    async def create_subscription(
        self,
        queue: str,
        name: str,
        config: SubscriptionConfig | None = None,
        *,
        start: str | int | datetime = "latest",
        **settings: Any,
    ) -> None:
        """Settings are those of `SubscriptionConfig`. ``start``: earliest, latest, index, time."""
        await self._store.define(
            base.CreateSubscription(
                queue=queue,
                subscription=name,
                config=_config(SubscriptionConfig, config, settings),
                start=start,
            )
        )

    async def alter_subscription(self, queue: str, name: str, **settings: Any) -> None:
        if "after" in settings:
            settings["after"] = tuple(settings["after"])
        await self._store.define(
            base.AlterSubscription(queue=queue, subscription=name, changes=settings)
        )

    async def pause(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        """Deliver nothing on it until it is resumed. Leases go on."""
        await self.alter_subscription(queue, subscription, paused=True)

    async def resume(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        await self.alter_subscription(queue, subscription, paused=False)

    async def delete_subscription(self, queue: str, name: str) -> None:
        """What waited for it alone is released."""
        await self._store.define(base.DeleteSubscription(queue=queue, subscription=name))

    async def seek(
        self, queue: str, start: str | int | datetime, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> None:
        """Go back or forward. Deliveries in flight become void."""
        await self._store.define(base.Seek(queue=queue, subscription=subscription, start=start))

    # Messages.

    async def publish(self, queue: str, messages: Sequence[NewMessage | bytes]) -> PublishResult:
        """Store a batch, all of it or nothing. The result states index, id and durability."""
        batch = prepare(messages)
        if not batch.bodies:
            raise InvalidArgument("there are no messages in the batch: pass at least one")
        return await self._store.publish(queue, batch)

    async def receive(
        self,
        queue: str,
        *,
        subscription: str = DEFAULT_SUBSCRIPTION,
        limit: int = 1,
        wait_seconds: float = 0,
        lease_seconds: float | None = None,
    ) -> list[Delivery]:
        """Lease messages. With ``wait_seconds`` it waits that long for the first one."""
        store = self._store
        deliveries = await store.receive(queue, subscription, limit, lease_seconds)
        if deliveries or wait_seconds <= 0:
            return deliveries
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        while not deliveries and (left := until - loop.time()) > 0:
            if await store.wait(queue, subscription, left):
                deliveries = await store.receive(queue, subscription, limit, lease_seconds)
        return deliveries

    async def poll(
        self, queue: str, subscription: str, *, start: int, count: int
    ) -> list[Delivery]:
        """Lease by index range; see `penstock.core.delivery.poll`."""
        return await self._store.poll(queue, subscription, start, count)

    async def ask_again(self, queue: str, subscription: str, index: int) -> Delivery:
        """Have one particular unsettled message delivered once more."""
        return await self._store.ask_again(queue, subscription, index)

    async def settle(
        self,
        queue: str,
        settlements: Sequence[base.Settlement],
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> list[list[Outcome]]:
        """Several acks, nacks and extensions in one go; an outcome for each target."""
        return await self._store.settle(queue, subscription, settlements)

    async def ack(
        self, queue: str, targets: Sequence[Target], subscription: str = DEFAULT_SUBSCRIPTION
    ) -> list[Outcome]:
        """Done with these. Targets are deliveries, receipts or message ids; idempotent."""
        settlements = [base.Ack(targets=targets)]
        return (await self._store.settle(queue, subscription, settlements))[0]

    async def ack_up_to(
        self, queue: str, index: int, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> int:
        """Done with everything below an index; returns how many that settled."""
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
        """Not done: deliver them again, after the backoff or ``delay_seconds``."""
        settlements = [base.Nack(targets=targets, delay_seconds=delay_seconds, reason=reason)]
        return (await self._store.settle(queue, subscription, settlements))[0]

    async def extend(
        self,
        queue: str,
        targets: Sequence[Target],
        seconds: float,
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> list[Outcome]:
        """Still at it: the leases end ``seconds`` from now."""
        settlements = [base.Extend(targets=targets, seconds=seconds)]
        return (await self._store.settle(queue, subscription, settlements))[0]

    async def read(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Messages by index, without touching anybody's progress."""
        if limit < 1:
            raise InvalidArgument(f"limit is {limit}: use 1 or more")
        return await self._store.read(queue, start, limit)

    async def view(
        self,
        queue: str,
        subscription: str = DEFAULT_SUBSCRIPTION,
        *,
        settled: bool | None = None,
        limit: int = 100,
    ) -> list[ViewedMessage]:
        """The oldest messages and how they stand with a subscription; settled, unsettled or all."""
        return await self._store.view(queue, subscription, settled, limit)

    async def find(self, queue: str, ids: Sequence[str]) -> list[Message | None]:
        """Messages by id; None for those that the queue does not hold."""
        return await self._store.find(queue, ids)

    async def get(self, queue: str, id: str) -> Message:
        """One message by id. Raises `MessageNotFound`."""
        message = (await self._store.find(queue, [id]))[0]
        if message is None:
            raise MessageNotFound(f"queue {queue!r} holds no message {id!r}")
        return message

    # Dead letters and dependencies.

    async def dead_letters(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Messages that failed for good, each with its `dead_letter`."""
        return await self._store.dead_letters(queue, start, limit)

    async def replay(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Give dead letters back to the subscriptions they failed on: all, or those of some ids."""
        return await self._store.redrive(queue, "replay", ids)

    async def discard(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Remove dead letters for good: all, or those of some ids."""
        return await self._store.redrive(queue, "discard", ids)

    async def held(self, queue: str, subscription: str, limit: int = 100) -> list[int]:
        """Indexes that wait for other subscriptions, lowest first."""
        return await self._store.held(queue, subscription, limit)

    async def release(self, queue: str, subscription: str, indexes: Sequence[int]) -> None:
        """Deliver messages although a subscription they wait for has not taken them."""
        await self._store.release(queue, subscription, indexes)


def _config(kind: type[Any], config: Any, settings: dict[str, Any]) -> Any:
    if config is not None:
        if settings:
            raise InvalidArgument("pass either a config or settings, not both")
        return config
    unknown = settings.keys() - set(kind.__struct_fields__)
    if unknown:
        raise InvalidArgument(
            f"unknown setting {', '.join(sorted(unknown))}: "
            f"there are {', '.join(kind.__struct_fields__)}"
        )
    if "after" in settings:
        settings["after"] = tuple(settings["after"])
    return kind(**settings)


def check_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Raise for the first target that could not be settled."""
    for outcome in outcomes:
        if outcome is Outcome.NOT_FOUND:
            raise MessageNotFound("the queue holds no such message")
        if outcome is Outcome.NOT_LEASED:
            raise NotLeased("the delivery is no longer in flight under that receipt")

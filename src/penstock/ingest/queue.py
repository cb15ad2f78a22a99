"""The ingest queue: one queue of the broker per tenant, handled in batches of one tenant at a time.

What a handler has finished is acked; what it failed on is delivered again, in this process or in
another. A message that fails `max_deliveries` times becomes a dead letter, with the last error.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, Generic, TypeVar

import msgspec

from penstock.broker import Broker
from penstock.core.config import (
    DEFAULT_SUBSCRIPTION,
    SubscriptionConfig,
    check_seconds,
    check_whole,
)
from penstock.core.limits import EVENTS_SUFFIX, MAX_REASON_CHARACTERS, check_name
from penstock.core.message import Delivery, NewMessage
from penstock.core.retry import Backoff
from penstock.errors import (
    InvalidArgument,
    InvalidReceipt,
    PenstockError,
    QueueExists,
    QueueNotFound,
    SubscriptionExists,
    SubscriptionNotFound,
)
from penstock.ingest.message import Codec, TenantMessage
from penstock.storage.base import Extend
from penstock.storage.registry import open_store

__all__ = ["Handler", "IngestQueue", "IngestSettings", "open"]

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=TenantMessage)

Handler = Callable[[Sequence[M]], Awaitable[None] | None]
"""A coroutine function; or a plain one, which is called in a thread. It must be safe to retry."""

_JSON = "application/json"
# How often to look for new tenants while there is work.
_LOOK_SECONDS = 1.0
# The tenant's queue was deleted, and perhaps created again, while a batch was handled. There is
# nothing left to settle, and other tenants wait for this consumer.
_REMOVED = (QueueNotFound, SubscriptionNotFound, InvalidReceipt)


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are stored, and when they are delivered again.

    - `prefix`: how the names of queues begin; a tenant's queue is ``<prefix>-<tenant>``. So an
      ingest ``a`` takes the queues of another one ``a-b`` for its own.
    - `lease_seconds`: how soon messages are delivered again when this process dies. Leases are
      extended for as long as the handler runs.
    - `max_deliveries`: after this many failures a message becomes a dead letter; None is never.
    - `backoff`: the delay before a batch that failed is delivered again.
    """

    prefix: str = "ingest"
    lease_seconds: float = 30.0
    max_deliveries: int | None = 10
    backoff: Backoff = Backoff(kind="exponential", base_seconds=1.0, max_seconds=60.0, jitter=0.2)

    def __post_init__(self) -> None:
        check_name(self.prefix, "ingest prefix")
        check_seconds("lease_seconds", self.lease_seconds)
        if self.max_deliveries is not None:
            check_whole("max_deliveries", self.max_deliveries, 1)


class _Deadline:
    """A moment on the event loop's clock."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + seconds

    @property
    def left(self) -> float:
        return self._at - self._loop.time()


class IngestQueue(Generic[M]):
    """Publishes and consumes. Any number of processes may share one, if the store allows it."""

    def __init__(
        self, broker: Broker, kind: type[M], settings: IngestSettings | None = None
    ) -> None:
        self._broker = broker
        self._codec = Codec(kind)
        self._settings = settings or IngestSettings()
        # Those with a queue, in the order of their turns, and whether it has our settings.
        self._tenants: dict[str, bool] = {}
        self._look_at = -inf  # when to look for more of them, by the event loop's clock

    async def publish(self, message: M) -> None:
        """Returns once the message is stored. Creates the tenant's queue if there is none."""
        await self.publish_many([message])

    async def publish_many(self, messages: Sequence[M]) -> None:
        """The messages of each tenant are stored all or not at all."""
        by_tenant: dict[str, list[NewMessage | bytes]] = {}
        for message in messages:
            new = NewMessage(body=self._codec.encode(message), content_type=_JSON)
            by_tenant.setdefault(message.tenant_code, []).append(new)
        for tenant in by_tenant:
            self._queue_of(tenant)  # a bad name is refused before anything is stored
        for tenant, batch in by_tenant.items():
            await self._publish(tenant, batch)

    async def _publish(self, tenant: str, batch: list[NewMessage | bytes]) -> None:
        if self._tenants.get(tenant):
            try:
                await self._broker.publish(self._queue_of(tenant), batch)
                return
            except QueueNotFound:
                pass  # somebody has deleted it since
        await self._prepare(tenant)
        await self._broker.publish(self._queue_of(tenant), batch)

    async def consume(
        self, batch_size: int, handler: Handler[M], *, wait_seconds: float = 2.0
    ) -> int:
        """Handle one batch, of the tenant whose turn it is among those that have messages.

        Returns how many messages were handled; 0 if none came in time, or if the handler failed.
        Its error is logged, and the batch is delivered again.
        """
        check_whole("batch_size", batch_size, 1)
        until = _Deadline(wait_seconds)
        while not (deliveries := await self._next_batch(batch_size)) and until.left > 0:
            await self._wait(list(self._tenants), until.left)
        return await self._handle(deliveries, handler)

    async def consume_for_tenant(
        self, tenant: str, batch_size: int, handler: Handler[M], *, wait_seconds: float = 2.0
    ) -> int:
        """Like `consume`, for one tenant."""
        check_whole("batch_size", batch_size, 1)
        until = _Deadline(wait_seconds)
        while True:
            if not self._tenants.get(tenant):  # also if somebody deletes it during the wait
                await self._prepare(tenant)
            deliveries = await self._receive(tenant, batch_size)
            if deliveries or until.left <= 0:
                break
            await self._wait([tenant], until.left)
        return await self._handle(deliveries, handler)

    async def pending_count(self, tenant: str) -> int:
        """How many messages are not finished: waiting, being handled, or to be delivered again."""
        try:
            reader = await self._broker.subscription_stats(self._queue_of(tenant))
        except (QueueNotFound, SubscriptionNotFound):
            return 0
        return reader.ready + reader.in_flight + reader.delayed

    async def tenants(self) -> list[str]:
        """The tenants that have a queue, whichever process created it."""
        prefix = f"{self._settings.prefix}-"
        return [
            name.removeprefix(prefix)
            for name in await self._broker.names()
            if name.startswith(prefix) and not await self._holds_events(name)
        ]

    async def _holds_events(self, queue: str) -> bool:
        """Whether it tells what happens in a tenant's queue: then it has no `default`."""
        if not queue.endswith(EVENTS_SUFFIX):
            return False
        try:
            await self._broker.subscription_stats(queue)
        except (QueueNotFound, SubscriptionNotFound):
            return True
        return False

    def _queue_of(self, tenant: str) -> str:
        if not isinstance(tenant, str) or not tenant:
            raise InvalidArgument(f"the tenant is {tenant!r}: use letters, digits, '-' or '_'")
        return check_name(f"{self._settings.prefix}-{tenant}", "tenant's queue")

    async def _prepare(self, tenant: str) -> None:
        """Create the tenant's queue if there is none, and apply the settings to it."""
        default = SubscriptionConfig(**self._subscription_settings())
        try:
            await self._broker.create_queue(self._queue_of(tenant), default=default)
        except QueueExists:
            await self._apply_settings(tenant)
        self._tenants[tenant] = True

    async def _apply_settings(self, tenant: str) -> None:
        """Raises `QueueNotFound`. If somebody deleted the subscription, it is created again."""
        queue, settings = self._queue_of(tenant), self._subscription_settings()
        try:
            await self._broker.alter_subscription(queue, DEFAULT_SUBSCRIPTION, **settings)
        except SubscriptionNotFound:
            with suppress(SubscriptionExists):
                await self._broker.create_subscription(
                    queue, DEFAULT_SUBSCRIPTION, start="earliest", **settings
                )
        self._tenants[tenant] = True

    def _subscription_settings(self) -> dict[str, Any]:
        return {
            "lease_seconds": self._settings.lease_seconds,
            "max_deliveries": self._settings.max_deliveries,
            "backoff": self._settings.backoff,
        }

    async def _next_batch(self, batch_size: int) -> list[Delivery]:
        """A batch of the first tenant that has messages, who then goes to the end of the line.

        Others join the line as they come, not only once those who are known have no more.
        """
        is_due = asyncio.get_running_loop().time() >= self._look_at
        if is_due:
            await self._look_for_tenants()
        deliveries = await self._take_turns(list(self._tenants), batch_size)
        if not deliveries and not is_due:
            deliveries = await self._take_turns(await self._look_for_tenants(), batch_size)
        return deliveries

    async def _look_for_tenants(self) -> list[str]:
        """Those that were not known yet, whose queues other processes have made."""
        self._look_at = asyncio.get_running_loop().time() + _LOOK_SECONDS
        new = [tenant for tenant in await self.tenants() if tenant not in self._tenants]
        for tenant in new:
            self._tenants.setdefault(tenant, False)
        return new

    async def _take_turns(self, tenants: Sequence[str], batch_size: int) -> list[Delivery]:
        for tenant in tenants:
            deliveries = await self._receive(tenant, batch_size)
            if deliveries:
                self._tenants[tenant] = self._tenants.pop(tenant, False)
                return deliveries
        return []

    async def _receive(self, tenant: str, batch_size: int) -> list[Delivery]:
        try:
            if not self._tenants.get(tenant):
                await self._apply_settings(tenant)
            return await self._broker.receive(self._queue_of(tenant), limit=batch_size)
        except QueueNotFound:
            self._tenants.pop(tenant, None)  # somebody deleted it
        except SubscriptionNotFound:
            self._tenants[tenant] = False  # likewise; it is created again at the next turn
        return []

    async def _wait(self, tenants: Sequence[str], seconds: float) -> None:
        """Wait for news of any of the tenants."""
        if not tenants:
            await asyncio.sleep(seconds)
            return
        waits = [
            asyncio.ensure_future(
                self._broker.wait(self._queue_of(tenant), DEFAULT_SUBSCRIPTION, seconds)
            )
            for tenant in tenants
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _handle(self, deliveries: list[Delivery], handler: Handler[M]) -> int:
        if not deliveries:
            return 0
        queue = deliveries[0].queue
        batch: list[M] = []
        good: list[Delivery] = []
        for delivery in deliveries:
            try:
                batch.append(self._codec.decode(delivery.body))
                good.append(delivery)
            except InvalidArgument as exc:
                await self._nack(queue, [delivery], str(exc))
        if not good:
            return 0
        keeping = asyncio.ensure_future(self._keep(queue, good))
        try:
            await _call(handler, batch)
        except Exception as exc:
            logger.exception(
                "the handler failed; %d messages of %s will be delivered again", len(good), queue
            )
            await self._nack(queue, good, f"{type(exc).__name__}: {exc}")
            return 0
        except asyncio.CancelledError:
            await asyncio.shield(self._nack(queue, good, "stopped", delay_seconds=0))
            raise
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        with suppress(*_REMOVED):
            await self._broker.ack(queue, good)
        return len(good)

    async def _nack(
        self,
        queue: str,
        deliveries: list[Delivery],
        reason: str,
        *,
        delay_seconds: float | None = None,
    ) -> None:
        with suppress(*_REMOVED):
            await self._broker.nack(
                queue,
                deliveries,
                delay_seconds=delay_seconds,
                reason=reason[:MAX_REASON_CHARACTERS],
            )

    async def _keep(self, queue: str, deliveries: list[Delivery]) -> None:
        """Extend the leases for as long as the handler runs."""
        seconds = self._settings.lease_seconds
        while True:
            await asyncio.sleep(seconds / 3)
            try:
                await self._broker.settle(queue, [Extend(targets=deliveries, seconds=seconds)])
            except PenstockError as exc:
                # The store may be away for a moment. There is time for another attempt before the
                # leases end.
                logger.warning(
                    "the leases of %d messages of %s were not extended: %s",
                    len(deliveries),
                    queue,
                    exc,
                )


async def _call(handler: Handler[M], batch: Sequence[M]) -> None:
    if inspect.iscoroutinefunction(handler):
        await handler(batch)
        return
    found = await asyncio.to_thread(handler, batch)
    if inspect.isawaitable(found):  # from an object with an asynchronous __call__
        await found


@asynccontextmanager
async def open(
    kind: type[M],
    url: str = "wal:./data",
    settings: IngestSettings | None = None,
) -> AsyncIterator[IngestQueue[M]]:
    """An ingest queue for messages of one type, for as long as the block runs.

    ``url`` names the store, and is all that differs between backends: ``wal:<directory>``, which
    one process at a time can open, or ``redis://...``, which any number can share.
    """
    async with Broker(await open_store(url)) as broker:
        yield IngestQueue(broker, kind, settings)

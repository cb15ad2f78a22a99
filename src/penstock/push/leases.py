"""Leases held during calls: short ones, extended for as long as the call takes.

So when a server dies its messages are delivered again soon, however long a callback may take.
"""

from __future__ import annotations

import asyncio

import structlog

from penstock.broker import Broker
from penstock.core.message import Delivery
from penstock.errors import NotFound, PenstockError
from penstock.push.resources import Spawn

__all__ = ["Leases"]

logger = structlog.get_logger("penstock.push")


class Leases:
    """Extends the leases that are held. While none is, there is no timer."""

    def __init__(
        self, broker: Broker, queue: str, subscription: str, seconds: float, spawn: Spawn
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._subscription = subscription
        self.seconds = seconds
        self._spawn = spawn
        self._held: dict[
            int, tuple[Delivery, float]
        ] = {}  # by index, with the time it was last extended
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, deliveries: list[Delivery]) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for delivery in deliveries:
            self._held[delivery.index] = (delivery, now)
        if self._timer is None:
            self._timer = loop.call_later(self.seconds / 3, self._on_time)

    def let_go(self, delivery: Delivery) -> None:
        held = self._held.get(delivery.index)
        if held is not None and held[0] is delivery:
            del self._held[delivery.index]

    def _on_time(self) -> None:
        self._timer = None
        if not self._held:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        old = [d for d, since in self._held.values() if now - since >= self.seconds / 4]
        if old:
            for delivery in old:
                self._held[delivery.index] = (delivery, now)
            self._spawn(self._extend(old))
        self._timer = loop.call_later(self.seconds / 3, self._on_time)

    async def _extend(self, deliveries: list[Delivery]) -> None:
        try:
            await self._broker.extend(self._queue, deliveries, self.seconds, self._subscription)
        except NotFound:
            pass  # it was deleted, and its messages with it
        except PenstockError as exc:
            logger.error(
                "leases were not extended",
                queue=self._queue,
                subscription=self._subscription,
                error=str(exc),
            )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

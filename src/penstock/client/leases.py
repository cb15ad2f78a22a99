"""Leases that are kept alive: those of one subscription, extended together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.client.message import Delivery
from penstock.core.outcome import Outcome
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client.async_client import AsyncClient

__all__ = ["Leases"]

_MAX_EXTEND = 1000

logger = logging.getLogger("penstock.client")


class Leases:
    """Deliveries that somebody is working on. Each is extended before half of its lease is over.

    A lease that the server says is lost, because it was out of reach for too long, is dropped:
    then `has` is False.
    """

    def __init__(
        self, client: AsyncClient, queue: str, subscription: str, *, seconds: float
    ) -> None:
        self._client = client
        self._queue = queue
        self._subscription = subscription
        self._seconds = seconds
        # By receipt: the delivery, and when its full lease last began.
        self._held: dict[str, tuple[Delivery, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def has(self, delivery: Delivery) -> bool:
        return delivery.receipt in self._held

    def add(self, deliveries: Sequence[Delivery]) -> None:
        now = asyncio.get_running_loop().time()
        for delivery in deliveries:
            self._held[delivery.receipt] = (delivery, now)

    def remove(self, delivery: Delivery) -> None:
        self._held.pop(delivery.receipt, None)

    async def keep(self) -> None:
        """Extend the leases in time, until cancelled."""
        tick = self._seconds / 4
        while True:
            await asyncio.sleep(tick)
            before = asyncio.get_running_loop().time() - tick
            old = [delivery for delivery, since in self._held.values() if since <= before]
            for start in range(0, len(old), _MAX_EXTEND):
                await self._extend(old[start : start + _MAX_EXTEND])

    async def _extend(self, deliveries: list[Delivery]) -> None:
        now = asyncio.get_running_loop().time()
        try:
            outcomes = await self._client.extend(
                self._queue, deliveries, self._seconds, self._subscription
            )
        except PenstockError as exc:
            logger.warning("extending leases of %s failed: %s", self._queue, exc)
            return
        # An ack or a nack in the same request ended the lease, too, which is no loss. Whoever waits
        # for that is told in this turn of the loop.
        await asyncio.sleep(0)
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            if not self.has(delivery):
                continue
            if outcome is Outcome.DONE:
                self._held[delivery.receipt] = (delivery, now)
            else:
                self.remove(delivery)
                logger.warning(
                    "the lease of message %s of %s was lost: %s",
                    delivery.id,
                    self._queue,
                    outcome.value,
                )

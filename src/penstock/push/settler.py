"""Acks and nacks of one subscription, gathered while the previous ones are being written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import structlog

from penstock.broker import Broker
from penstock.core.message import Delivery
from penstock.errors import InvalidReceipt, NotFound, PenstockError
from penstock.push.resources import WRITING, Spawn
from penstock.storage.base import Ack, GiveBack, Nack, Settlement

__all__ = ["Settler"]

logger = structlog.get_logger("penstock.push")


class Settler:
    """Settles without being awaited. What cannot be written is delivered again: at least once."""

    def __init__(self, broker: Broker, queue: str, subscription: str, spawn: Spawn) -> None:
        self._broker = broker
        self._queue = queue
        self._subscription = subscription
        self._spawn = spawn
        self._acks: list[Delivery] = []
        self._nacks: list[Nack] = []
        self._unbegun: list[Delivery] = []
        self._task: asyncio.Task[None] | None = None

    def ack(self, delivery: Delivery) -> None:
        self._acks.append(delivery)
        self._start()

    def nack(self, delivery: Delivery, reason: str, delay_seconds: float | None) -> None:
        self._nacks.append(Nack(targets=[delivery], delay_seconds=delay_seconds, reason=reason))
        self._start()

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """No endpoint has answered for these, and the delivery does not count."""
        self._unbegun += deliveries
        self._start()

    def _start(self) -> None:
        if self._task is None:
            self._task = self._spawn(self._write(), WRITING)

    async def _write(self) -> None:
        try:
            while self._acks or self._nacks or self._unbegun:
                settlements: list[Settlement] = [Ack(targets=self._acks)] if self._acks else []
                settlements += self._nacks
                if self._unbegun:
                    settlements.append(GiveBack(targets=self._unbegun))
                self._acks, self._nacks, self._unbegun = [], [], []
                await self._settle(settlements)
        finally:
            self._task = None

    async def _settle(self, settlements: list[Settlement]) -> None:
        try:
            await self._broker.settle(self._queue, settlements, self._subscription)
        except InvalidReceipt:
            # The subscription was re-created: some of these belong to the former one.
            for one in settlements:
                await self._settle_each(one)
        except NotFound:
            pass  # it was deleted, and its messages with it
        except PenstockError as exc:
            logger.error(
                "callbacks were not noted",
                queue=self._queue,
                subscription=self._subscription,
                error=str(exc),
            )

    async def _settle_each(self, settlement: Settlement) -> None:
        assert isinstance(settlement, Ack | Nack | GiveBack)
        for target in settlement.targets:
            one = msgspec.structs.replace(settlement, targets=[target])
            try:
                await self._broker.settle(self._queue, [one], self._subscription)
            except PenstockError:
                continue

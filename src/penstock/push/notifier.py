"""Mode ``notify``: a subscriber is told that there is something to receive, and comes for it."""

from __future__ import annotations

import asyncio
import secrets

import structlog

from penstock.core.callback import CallbackState, CallbackTarget
from penstock.core.stats import SubscriptionStats
from penstock.errors import NotFound, PenstockError, StorageClosed
from penstock.push.record import Record
from penstock.push.request import Requests
from penstock.push.resources import Resources
from penstock.push.transport import CallFailed, Endpoint

__all__ = ["Notifier"]

logger = structlog.get_logger("penstock.push")

# A burst of messages is one call: the first one waits this long for others.
_LINGER_SECONDS = 0.005
# Between two calls, for the same reason.
_GAP_SECONDS = 0.1
_WAIT_SECONDS = 3600.0
_TROUBLE_SECONDS = 5.0
_AT_ONCE = 1e-6


class Notifier:
    """Notifies one subscriber until it is closed. Whatever it answers, it has been told."""

    def __init__(self, target: CallbackTarget, resources: Resources) -> None:
        self._broker = resources.broker
        self._transport = resources.transport
        self._slots = resources.slots
        self._clock = resources.clock
        self._record = Record(resources.clock)
        self._loop = asyncio.get_running_loop()
        self._slot = asyncio.Event()
        self._spawn = resources.spawn
        self._use(target)
        self._task = self._spawn(self._run())

    def update(self, target: CallbackTarget) -> None:
        """From the next call on. A new URL is told at once of what there is."""
        is_new = target.callback.url != self.target.callback.url
        self._use(target)
        if is_new:
            self._record.begin_anew()
            self.close()
            self._task = self._spawn(self._run())

    def _use(self, target: CallbackTarget) -> None:
        self.target = target
        self._requests = Requests(target)
        self._endpoint = Endpoint(target.callback)

    def state(self) -> CallbackState:
        return self._record.state(self._loop.time(), 0.0)

    def stop(self) -> None:
        self._task.cancel()

    def close(self) -> None:
        self.stop()
        self._slots.forget(self)

    @property
    def is_suspect(self) -> bool:
        return self._record.circuit.failures > 0

    def pump(self) -> None:
        self._slot.set()

    async def _run(self) -> None:
        seen = 0
        names = self.target.queue, self.target.subscription
        while True:
            try:
                if await self._broker.wait(*names, _WAIT_SECONDS, beyond=seen) is None:
                    continue
                await asyncio.sleep(max(_LINGER_SECONDS, self._closed_seconds()))
                arrivals = await self._broker.wait(*names, _AT_ONCE, beyond=seen)
                stats = await self._broker.subscription_stats(*names)
            except (NotFound, StorageClosed):
                return
            except PenstockError as exc:
                queue, subscription = names
                logger.error(
                    "a callback could not look for news",
                    queue=queue,
                    subscription=subscription,
                    error=str(exc),
                )
                await asyncio.sleep(_TROUBLE_SECONDS)
                continue
            seen = seen if arrivals is None else arrivals
            if stats.ready:
                await self._tell(stats)
                await asyncio.sleep(_GAP_SECONDS)

    def _closed_seconds(self) -> float:
        return (self._record.circuit.open_until or 0.0) - self._loop.time()

    async def _tell(self, stats: SubscriptionStats) -> None:
        while not self._slots.take(self):
            self._slot.clear()
            await self._slot.wait()
        self._record.under_way = 1
        body = self._requests.notice_body(stats)
        headers = self._requests.notice_headers(secrets.token_hex(16), body, self._clock.now_ns())
        try:
            answer = await self._transport.post(self._endpoint, body, headers)
            self._record.succeeded(answer.status, self._record.circuit)
        except CallFailed as exc:
            self._record.failed(self._loop.time(), str(exc), None, self._record.circuit)
        finally:
            self._record.under_way = 0
            self._slots.give(self)

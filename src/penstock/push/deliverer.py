"""Mode ``deliver``: the messages of one subscription are posted, and a 2xx answer is the ack.

One task fetches in batches, ahead of the calls. Others, as many as there may be calls at once, take
from what was fetched, and end when nothing is left. So an idle subscription costs one sleeping
task, and a busy one does not cost a task per message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog

from penstock.core.callback import CallbackState, CallbackTarget
from penstock.core.message import Delivery
from penstock.errors import NotFound, PenstockError, StorageClosed
from penstock.push.circuit import Circuit
from penstock.push.leases import Leases
from penstock.push.record import Record, failure_text
from penstock.push.request import Requests
from penstock.push.resources import CALLING, Resources
from penstock.push.retry_after import retry_after_seconds
from penstock.push.settler import Settler
from penstock.push.transport import Answer, Begun, CallFailed, Endpoint

__all__ = ["Deliverer"]

logger = structlog.get_logger("penstock.push")

_GONE = 410
_BUSY = (429, 503)
_WAIT_SECONDS = 3600.0
_TROUBLE_SECONDS = 5.0


class _Call(NamedTuple):
    delivery: Delivery
    begun: Begun
    circuit: Circuit


class Deliverer:
    """Calls for one subscription until it is closed."""

    def __init__(self, target: CallbackTarget, resources: Resources, lease_seconds: float) -> None:
        self._broker = resources.broker
        self._transport = resources.transport
        self._slots = resources.slots
        self._clock = resources.clock
        self._spawn = resources.spawn
        self._record = Record(resources.clock)
        self._loop = asyncio.get_running_loop()
        names = target.queue, target.subscription
        self._settler = Settler(resources.broker, *names, resources.spawn)
        self._leases = Leases(resources.broker, *names, lease_seconds, resources.spawn)
        self._buffer: deque[Delivery] = deque()
        self._calls = 0
        self._not_before = 0.0
        self._wanted = asyncio.Event()
        self._is_closed = False
        self._use(target)
        self._fetcher = resources.spawn(self._fetch())

    def update(self, target: CallbackTarget) -> None:
        """From the next call on. A new URL does not wait for what the one before it did."""
        if target.callback.url != self.target.callback.url:
            self._record.begin_anew()
            self._not_before = 0.0
        self._use(target)
        self.pump()

    def _use(self, target: CallbackTarget) -> None:
        self.target = target
        self._requests = Requests(target)
        self._endpoint = Endpoint(target.callback)
        if target.paused:
            self._give_back()
        self._wanted.set()

    def state(self) -> CallbackState:
        return self._record.state(self._loop.time(), self._not_before)

    def stop(self) -> None:
        """Fetch no more. What was fetched is still delivered."""
        self._fetcher.cancel()

    def close(self) -> None:
        """Give back what was fetched and not delivered."""
        self.stop()
        self._is_closed = True
        self._give_back()
        self._leases.close()
        self._slots.forget(self)

    @property
    def is_suspect(self) -> bool:
        return self._record.circuit.failures > 0

    # Fetching.

    @property
    def _limit(self) -> int:
        """How many calls at once: halved by every failure in a row, down to one."""
        concurrency = self.target.callback.concurrency
        failures = self._record.circuit.failures
        return max(1, concurrency >> failures) if failures else concurrency

    @property
    def _room(self) -> int:
        """How many to fetch now: ahead of the calls, while all goes well."""
        if self.target.paused:
            return 0
        limit = self._limit
        if limit > 1 and not self.is_suspect:
            ahead = limit - len(self._buffer)
            # Not one by one: a fetch costs the same for many.
            return ahead if ahead * 2 > limit else 0
        return limit - len(self._buffer) - self._calls

    async def _fetch(self) -> None:
        broker, names = self._broker, (self.target.queue, self.target.subscription)
        is_empty = False
        while not self._is_closed:
            pause = self._pause_seconds()
            if pause > 0:
                self._wanted.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wanted.wait()
                continue
            room = self._room
            if room <= 0:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            try:
                if is_empty:
                    await broker.wait(*names, _WAIT_SECONDS)
                    is_empty = False
                    continue
                deliveries = await broker.receive(
                    names[0],
                    subscription=names[1],
                    limit=room,
                    lease_seconds=self._leases.seconds,
                )
            except (NotFound, StorageClosed):
                return
            except PenstockError as exc:
                logger.error("nothing could be fetched for a callback", error=str(exc), **self._who)
                await asyncio.sleep(_TROUBLE_SECONDS)
                continue
            is_empty = len(deliveries) < room
            if deliveries:
                self._leases.hold(deliveries)
                self._buffer.extend(deliveries)
                self.pump()

    def _pause_seconds(self) -> float:
        """Until the next call may be made: the circuit is open, or the endpoint asked to wait."""
        until = max(self._not_before, self._record.circuit.open_until or 0.0)
        return until - self._loop.time()

    # Calling.

    def pump(self) -> None:
        """Start as many calls as there may be."""
        while self._may_call(self._calls) and self._slots.take(self):
            self._calls += 1
            self._record.under_way = self._calls
            self._spawn(self._call_all(self._begin()), CALLING)

    def _may_call(self, others: int) -> bool:
        if not self._buffer or others >= self._limit or self._is_closed:
            return False
        if self.target.paused or self._pause_seconds() > 0:
            self._give_back()
            return False
        return True

    def _give_back(self) -> None:
        """Give back what was fetched ahead: it is to wait in the queue, not here."""
        if self._buffer:
            deliveries = list(self._buffer)
            self._buffer.clear()
            for delivery in deliveries:
                self._leases.let_go(delivery)
            self._settler.give_back(deliveries)

    def _begin(self) -> _Call:
        """Begin the next call. Its request is sent now if it can be, not when its task runs."""
        delivery = self._buffer.popleft()
        if not self._wanted.is_set() and self._room > 0:
            self._wanted.set()
        headers = self._requests.delivery_headers(delivery, self._clock.now_ns())
        begun = self._transport.begin(self._endpoint, delivery.body, headers)
        return _Call(delivery, begun, self._record.circuit)

    async def _call_all(self, call: _Call) -> None:
        try:
            while True:
                await self._finish(call)
                if self._slots.is_wanted_from(self) or not self._may_call(self._calls - 1):
                    break
                call = self._begin()
        finally:
            self._calls -= 1
            self._record.under_way = self._calls
            self._slots.give(self)
            self._wanted.set()
            self.pump()

    async def _finish(self, call: _Call) -> None:
        delivery = call.delivery
        try:
            answer = await self._transport.finish(call.begun)
        except CallFailed as exc:
            self._failed(call, str(exc))
        except asyncio.CancelledError:
            self._settler.give_back([delivery])
            raise
        else:
            if answer.is_success:
                self._record.succeeded(answer.status, call.circuit)
                self._settler.ack(delivery)
            else:
                await self._refused(call, answer)
        finally:
            self._leases.let_go(delivery)

    async def _refused(self, call: _Call, answer: Answer) -> None:
        reason = failure_text(answer)
        delay = None
        if answer.status in _BUSY:
            delay = retry_after_seconds(answer.retry_after, self._clock.now_ns() / 1e9)
        self._failed(call, reason, answer.status, delay)
        # One that was called before the URL changed speaks for the former URL alone.
        if answer.status == _GONE and call.circuit is self._record.circuit:
            await self._pause()

    async def _pause(self) -> None:
        """Make no more calls from this moment on; once it is stored, nothing is delivered."""
        logger.warning("a callback is gone: its subscription is paused", **self._who)
        self.target = msgspec.structs.replace(self.target, paused=True)
        self._give_back()
        try:
            await self._broker.pause(self.target.queue, self.target.subscription)
        except PenstockError as exc:
            logger.error("a subscription could not be paused", error=str(exc), **self._who)
            self.target = msgspec.structs.replace(self.target, paused=False)

    def _failed(
        self,
        call: _Call,
        reason: str,
        status: int | None = None,
        delay_seconds: float | None = None,
    ) -> None:
        now = self._loop.time()
        if delay_seconds is None:
            self._record.failed(now, reason, status, call.circuit)
        else:
            self._record.put_off(reason, status)
            if call.circuit is self._record.circuit:
                self._not_before = max(self._not_before, now + delay_seconds)
        self._settler.nack(call.delivery, reason, delay_seconds)

    @property
    def _who(self) -> dict[str, str]:
        return {"queue": self.target.queue, "subscription": self.target.subscription}

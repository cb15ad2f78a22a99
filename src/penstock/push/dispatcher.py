"""The dispatcher: runs a caller for every subscription that has a callback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

import structlog

from penstock.broker import Broker
from penstock.clock import Clock, SystemClock
from penstock.core.callback import CallbackState, CallbackTarget
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX
from penstock.errors import PenstockError, StorageClosed
from penstock.push.deliverer import Deliverer
from penstock.push.guard import Guard, Network
from penstock.push.notifier import Notifier
from penstock.push.resolver import Resolve
from penstock.push.resources import CALLING, WRITING, Resources
from penstock.push.slots import Slots
from penstock.push.transport import Transport

__all__ = ["Dispatcher"]

logger = structlog.get_logger("penstock.push")

_TROUBLE_SECONDS = 5.0
# A queue is deleted with its dead letters and its events.
_FAMILY = ("", DEAD_LETTER_SUFFIX, EVENTS_SUFFIX, EVENTS_SUFFIX + DEAD_LETTER_SUFFIX)

Caller = Deliverer | Notifier


class Dispatcher:
    """Calls callbacks between `start` and `close`.

    - ``allowed``: networks that may be called although they are not public.
    - ``workers``: calls under way at once, over all subscriptions.
    - ``lease_seconds``: how soon a message is delivered again when its server died during the call.
    - ``refresh_seconds``: how often to look for definitions that other servers made; without it,
      only those made through this broker are seen.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        allowed: Iterable[Network] = (),
        workers: int = 1000,
        lease_seconds: float = 15.0,
        tls: ssl.SSLContext | None = None,
        refresh_seconds: float | None = None,
        resolve: Resolve | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._broker = broker
        self._guard = Guard(allowed)
        self._slots = Slots(workers)
        self._lease_seconds = lease_seconds
        self._tls = tls
        self._refresh_seconds = refresh_seconds
        self._resolve = resolve
        self._clock = clock or SystemClock()
        self._callers: dict[tuple[str, str], Caller] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._changed_queues: set[str] = set()
        self._follower: asyncio.Task[None] | None = None
        self._resources: Resources | None = None

    async def start(self) -> None:
        self._resources = Resources(
            broker=self._broker,
            transport=Transport(self._guard, tls=self._tls, resolve=self._resolve),
            slots=self._slots,
            clock=self._clock,
            spawn=self._spawn,
        )
        self._broker.report_callbacks(self)
        self._follower = self._spawn(self._follow())

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Calls under way have ``grace_seconds`` to be answered, and acks are written. Idempotent.

        What was not answered by then is delivered again after the next start.
        """
        if self._follower is None:
            return
        self._follower.cancel()
        self._follower = None
        self._broker.report_callbacks(None)
        for caller in self._callers.values():
            caller.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                while calls := [task for task in self._tasks if task.get_name() == CALLING]:
                    await asyncio.wait(calls)
        for caller in self._callers.values():
            caller.close()
        await self._end_tasks()
        if self._resources is not None:
            await self._resources.transport.close()

    async def _end_tasks(self) -> None:
        """Those that settle what was answered run to their end; the others are cancelled."""
        for task in self._tasks:
            if task.get_name() != WRITING:
                task.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # What the broker wants to know.

    def definitions_changed(self, queue: str) -> None:
        self._changed_queues.add(queue)
        self._changed.set()

    def state(self, queue: str, subscription: str) -> CallbackState | None:
        caller = self._callers.get((queue, subscription))
        return None if caller is None else caller.state()

    # Following the definitions.

    async def _follow(self) -> None:
        """Look at all queues at first and every ``refresh_seconds``, at changed ones in between."""
        while True:
            try:
                self._adopt(await self._broker.callbacks())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._refresh_seconds):
                        await self._follow_changes()
            except StorageClosed:
                return
            except PenstockError as exc:
                logger.error("callbacks could not be looked up", error=str(exc))
                await asyncio.sleep(_TROUBLE_SECONDS)

    async def _follow_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            queues, self._changed_queues = self._changed_queues, set()
            for queue in queues:
                for suffix in _FAMILY:
                    one = queue + suffix
                    self._adopt(await self._broker.callbacks(one), one)

    def _adopt(self, targets: list[CallbackTarget], queue: str | None = None) -> None:
        """Call these and nobody else, in all queues or in one."""
        wanted = {
            (target.queue, target.subscription): target
            for target in targets
            # A paused deliverer receives nothing anyway, and finishes the calls under way.
            if not (target.paused and target.callback.mode == "notify")
        }
        for key, caller in list(self._callers.items()):
            if queue is not None and key[0] != queue:
                continue
            target = wanted.get(key)
            if target is None or not _is_for(caller, target):
                caller.close()
                del self._callers[key]
            elif target != caller.target:
                caller.update(target)
        for key, target in wanted.items():
            if key not in self._callers:
                self._callers[key] = self._caller(target)

    def _caller(self, target: CallbackTarget) -> Caller:
        assert self._resources is not None
        if target.callback.mode == "notify":
            return Notifier(target, self._resources)
        return Deliverer(target, self._resources, self._lease_seconds)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "") -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("calling back failed", exc_info=error)


def _is_for(caller: Caller, target: CallbackTarget) -> bool:
    """False for another mode, and for another subscription, made under the same name."""
    known = caller.target
    if known.callback.mode != target.callback.mode:
        return False
    return not set(known.secrets).isdisjoint(target.secrets)

"""A worker: receives deliveries, calls a handler for each, and settles them."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from penstock.client.arguments import check_count, check_seconds
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientClosed
from penstock.client.message import Delivery
from penstock.client.settling import Settler
from penstock.core.config import DEFAULT_SUBSCRIPTION
from penstock.core.limits import MAX_REASON_CHARACTERS
from penstock.core.outcome import Outcome
from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock.client.async_client import AsyncClient

__all__ = ["Handler", "Worker", "WorkerSettings"]

Handler = Callable[[Delivery], Awaitable[None] | None]
"""A coroutine function; or a plain function, which is called in a thread."""

_BACKOFF = Backoff(kind="exponential", base_seconds=1.0, max_seconds=300.0, jitter=0.5)

_MAX_ACKS = 1000

logger = logging.getLogger("penstock.client")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works.

    - `concurrency`: how many handlers run at once.
    - `prefetch`: how many deliveries are leased and wait for a handler; None is four per handler.
    - `lease_seconds`: how soon a message is delivered again when this process dies. The lease is
      extended for as long as the handler runs.
    - `wait_seconds`: how long one long poll waits, up to 20.
    - `backoff`: the delay before a message whose handler failed is delivered again; None leaves it
      to the subscription.
    - `stop_seconds`: how long handlers may take to finish after a stop. Then they are cancelled,
      and their messages are delivered again.
    """

    queue: str
    subscription: str = DEFAULT_SUBSCRIPTION
    concurrency: int = 1
    prefetch: int | None = None
    lease_seconds: float = 30.0
    wait_seconds: float = 20.0
    backoff: Backoff | None = _BACKOFF
    stop_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency)
        check_seconds("lease_seconds", self.lease_seconds, least=0.001)
        check_seconds("wait_seconds", self.wait_seconds)
        check_seconds("stop_seconds", self.stop_seconds)
        if self.prefetch is not None and self.prefetch < 0:
            raise InvalidArgument(f"prefetch is {self.prefetch}: use 0 or more")

    @property
    def limit(self) -> int:
        """How many deliveries are being handled, or wait for a handler, at once."""
        prefetch = 4 * self.concurrency if self.prefetch is None else self.prefetch
        return self.concurrency + prefetch


class Worker:
    """Runs a handler for every delivery of a subscription, until it is stopped.

    A handler that returns acks its message; one that raises nacks it, with the error as the
    reason. The next delivery does not wait for the answer to that. At least once: a handler may
    see a message again, when the process or the server died at the wrong moment.
    """

    def __init__(
        self, client: AsyncClient, handler: Handler, settings: WorkerSettings, rng: random.Random
    ) -> None:
        self._client = client
        # The loop's own pool has too few threads for many handlers at once.
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="worker")
        self._handler = _as_coroutine(handler, self._threads)
        self._settings = settings
        self._rng = rng
        self._stop = asyncio.Event()
        self._is_forced = asyncio.Event()

    def stop(self) -> None:
        """Receive no more, and let running handlers finish. A second call cancels them."""
        if self._stop.is_set():
            self._is_forced.set()
        self._stop.set()

    def end(self) -> None:
        """Like the first `stop`, however often it is called."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop`. Raises an error that will not pass by itself."""
        try:
            await self._run()
        finally:
            # A thread cannot be cancelled. Only the end of the process waits for it.
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        settings = self._settings
        consumer = Consumer(
            self._client,
            settings.queue,
            settings.subscription,
            limit=settings.limit,
            lease_seconds=settings.lease_seconds,
            wait_seconds=settings.wait_seconds,
            rng=self._rng,
        )
        settler = self._client.settler(settings.queue, settings.subscription)
        handled = _Handled(consumer, settler)
        async with consumer:
            slots = [
                asyncio.create_task(self._work(consumer, handled))
                for _ in range(settings.concurrency)
            ]
            stopped = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait([stopped, *slots], return_when=asyncio.FIRST_COMPLETED)
                self._stop.set()
                ending = asyncio.create_task(consumer.stop())
                await self._finish(slots)
                await ending
            finally:
                stopped.cancel()
                for slot in slots:
                    slot.cancel()
                await asyncio.gather(stopped, *slots, return_exceptions=True)
        for slot in slots:
            if not slot.cancelled() and (error := slot.exception()) is not None:
                raise error

    async def _finish(self, slots: list[asyncio.Task[None]]) -> None:
        forced = asyncio.create_task(self._is_forced.wait())
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.stop_seconds
        running: set[asyncio.Task[None]] = set(slots)
        try:
            while running and not forced.done() and (left := until - loop.time()) > 0:
                done, _ = await asyncio.wait(
                    [forced, *running], timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                running -= done
        finally:
            forced.cancel()

    async def _work(self, consumer: Consumer, handled: _Handled) -> None:
        while (delivery := await consumer.take()) is not None:
            try:
                await self._handler(delivery)
            except asyncio.CancelledError as exc:
                if _is_being_cancelled():
                    handled.nack(delivery, "the worker was stopped", 0.0)
                    raise
                # Something that the handler itself awaited was cancelled.
                self._fail(handled, delivery, exc)
            except Exception as exc:
                self._fail(handled, delivery, exc)
            except BaseException as exc:
                # The program is ending; the message need not wait for its lease to end.
                self._fail(handled, delivery, exc)
                raise
            else:
                handled.ack(delivery)

    def _fail(self, handled: _Handled, delivery: Delivery, error: BaseException) -> None:
        logger.warning(
            "the handler failed on message %s of %s", delivery.id, delivery.queue, exc_info=True
        )
        handled.nack(delivery, _reason(error), self._delay(delivery))

    def _delay(self, delivery: Delivery) -> float | None:
        backoff = self._settings.backoff
        return None if backoff is None else backoff.delay_seconds(delivery.deliveries, self._rng)


class _Handled:
    """Settles what handlers have finished. The acks of one turn of the event loop go together."""

    def __init__(self, consumer: Consumer, settler: Settler) -> None:
        self._consumer = consumer
        self._settler = settler
        self._loop = asyncio.get_running_loop()
        self._done: list[Delivery] = []

    def ack(self, delivery: Delivery) -> None:
        self._consumer.settling()
        if not self._done:
            self._loop.call_soon(self._flush)
        self._done.append(delivery)

    def nack(self, delivery: Delivery, reason: str, delay_seconds: float | None) -> None:
        self._consumer.settling()
        settled = self._settler.nack([delivery], delay_seconds=delay_seconds, reason=reason)
        settled.add_done_callback(functools.partial(self._settled, [delivery]))

    def _flush(self) -> None:
        done, self._done = self._done, []
        for start in range(0, len(done), _MAX_ACKS):
            self._ack(done[start : start + _MAX_ACKS])

    def _ack(self, deliveries: list[Delivery]) -> None:
        try:
            settled = self._settler.ack(deliveries)
        except ClientClosed as exc:
            self._let_go(deliveries, exc)
        else:
            settled.add_done_callback(functools.partial(self._settled, deliveries))

    def _settled(
        self, deliveries: list[Delivery], settled: asyncio.Future[Sequence[list[Outcome]]]
    ) -> None:
        error = None if settled.cancelled() else settled.exception()
        self._let_go(deliveries, error)
        if settled.cancelled() or error is not None:
            return
        for delivery, outcome in zip(deliveries, settled.result()[0], strict=True):
            if outcome in (Outcome.NOT_LEASED, Outcome.NOT_FOUND):
                logger.warning(
                    "message %s was no longer ours to settle: %s", delivery.id, outcome.value
                )

    def _let_go(self, deliveries: list[Delivery], error: BaseException | None) -> None:
        for delivery in deliveries:
            self._consumer.settled(delivery)
            if error is not None:
                logger.warning(
                    "message %s was not settled, it will be delivered again: %s", delivery.id, error
                )


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _reason(error: BaseException) -> str:
    """The error's name and text, made safe to send."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text.encode(errors="backslashreplace").decode()[:MAX_REASON_CHARACTERS]


def _as_coroutine(
    handler: Handler, threads: ThreadPoolExecutor
) -> Callable[[Delivery], Awaitable[None]]:
    if inspect.iscoroutinefunction(handler):
        return handler

    def plain(delivery: Delivery) -> Awaitable[None] | None:
        try:
            return handler(delivery)
        except StopIteration as exc:
            # A future cannot hold a StopIteration: whoever awaits it would wait for ever.
            raise RuntimeError("the handler raised StopIteration") from exc

    async def call(delivery: Delivery) -> None:
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(threads, context.run, plain, delivery)
        if inspect.isawaitable(found):
            await found

    return call

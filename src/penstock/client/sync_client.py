"""The synchronous client: the asynchronous one, on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from penstock.client.async_client import AsyncClient
from penstock.client.errors import ClientClosed
from penstock.client.options import ClientOptions

__all__ = ["Client"]

P = ParamSpec("P")
R = TypeVar("R")

_LAST_SECONDS = 1.0


def _sync(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait_for(method, *args, **kwargs)

    return call


class _Call(Generic[R]):
    """A call that one thread makes and the loop's thread carries out.

    The calling thread may be interrupted (Ctrl-C) between any two of its steps, so it does nothing
    that could be left half done: the coroutine is made in the loop's thread, where somebody awaits
    it, and the answer is awaited with a bare lock. (An interrupt at the wrong moment would leave a
    `threading.Condition`, on which futures and events wait, without its lock.)
    """

    def __init__(self, make: Callable[[], Awaitable[R]]) -> None:
        self.is_done = False
        self._make = make
        self._task: asyncio.Task[R] | None = None
        self._is_given_up = False
        self._result: R | None = None
        self._error: BaseException | None = None
        self._until_done = threading.Lock()
        self._until_done.acquire()

    def wait(self) -> R:
        """Wait for the answer. For the one thread that made the call."""
        self._until_done.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return cast(R, self._result)

    def start(self) -> None:
        if not self._is_given_up:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._finish)

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> R:
        return await self._make()

    def _finish(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            # `close` cancels calls that would not end by themselves.
            self._error = ClientClosed("the client was closed in the meantime: make a new one")
        elif (error := task.exception()) is not None:
            self._error = error
        else:
            self._result = task.result()
        # Drop the last reference here, not in a thread that may be interrupted meanwhile.
        self._task = None
        self.is_done = True
        self._until_done.release()


class Client:
    """`AsyncClient` for programs without an event loop: the same methods and options.

    Any number of threads may share one, and their concurrent calls share requests, as those of
    tasks do. A call that is interrupted is given up. Close it, or use it as a context manager. It
    does not survive a fork: the child has to make its own.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8080", **options: Unpack[ClientOptions]
    ) -> None:
        self._client = AsyncClient(url, **options)
        self._loop: asyncio.AbstractEventLoop
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_no_time = False
        self._ending: asyncio.Task[None] | None = None
        self._process = os.getpid()
        # The loop is made in that thread, too: one left half made by an interrupt would complain.
        has_loop = threading.Lock()
        has_loop.acquire()
        self._thread = threading.Thread(
            target=self._run, args=[has_loop], name="penstock-client", daemon=True
        )
        self._thread.start()
        has_loop.acquire()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # Interrupted: do not wait for a server that does not answer.
            self._has_no_time = True
        self.close()

    def close(self) -> None:
        """Wait for the calls under way, then let go of the connections. Idempotent.

        If it is interrupted, it goes on in its thread for as long as the process lives.
        """
        if os.getpid() != self._process:
            return  # the connections are the parent's
        with self._lock:
            self._is_closed = True
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _run(self, has_loop: threading.Lock) -> None:
        try:
            self._loop = asyncio.new_event_loop()
        finally:
            has_loop.release()
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._finish())

    async def _finish(self) -> None:
        try:
            if self._has_no_time:
                await self._client.cut_off()
                for task in self._others():
                    task.cancel()
            await self._client.close()
            # Calls that were interrupted, and those of other threads, end without a connection.
            if others := self._others():
                _, late = await asyncio.wait(others, timeout=_LAST_SECONDS)
                for task in late:
                    task.cancel()
                if late:
                    await asyncio.wait(late)
        finally:
            self._loop.stop()

    def _others(self) -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks() - {self._ending}

    @property
    def url(self) -> str:
        return self._client.url

    create_queue = _sync(AsyncClient.create_queue)
    ensure_queue = _sync(AsyncClient.ensure_queue)
    alter_queue = _sync(AsyncClient.alter_queue)
    delete_queue = _sync(AsyncClient.delete_queue)
    purge_queue = _sync(AsyncClient.purge_queue)
    queues = _sync(AsyncClient.queues)
    queue_stats = _sync(AsyncClient.queue_stats)
    stats = _sync(AsyncClient.stats)

    create_subscription = _sync(AsyncClient.create_subscription)
    ensure_subscription = _sync(AsyncClient.ensure_subscription)
    alter_subscription = _sync(AsyncClient.alter_subscription)
    rotate_secret = _sync(AsyncClient.rotate_secret)
    delete_subscription = _sync(AsyncClient.delete_subscription)
    subscriptions = _sync(AsyncClient.subscriptions)
    subscription_stats = _sync(AsyncClient.subscription_stats)
    pause = _sync(AsyncClient.pause)
    resume = _sync(AsyncClient.resume)
    seek = _sync(AsyncClient.seek)

    publish = _sync(AsyncClient.publish)
    receive = _sync(AsyncClient.receive)
    poll = _sync(AsyncClient.poll)
    ask_again = _sync(AsyncClient.ask_again)
    ack = _sync(AsyncClient.ack)
    ack_up_to = _sync(AsyncClient.ack_up_to)
    nack = _sync(AsyncClient.nack)
    give_back = _sync(AsyncClient.give_back)
    extend = _sync(AsyncClient.extend)
    read = _sync(AsyncClient.read)
    view = _sync(AsyncClient.view)
    find = _sync(AsyncClient.find)
    get = _sync(AsyncClient.get)

    dead_letters = _sync(AsyncClient.dead_letters)
    replay = _sync(AsyncClient.replay)
    discard = _sync(AsyncClient.discard)
    held = _sync(AsyncClient.held)
    held_messages = _sync(AsyncClient.held_messages)
    graph = _sync(AsyncClient.graph)
    test_filter = _sync(AsyncClient.test_filter)
    release = _sync(AsyncClient.release)

    health = _sync(AsyncClient.health)
    log_in = _sync(AsyncClient.log_in)
    users = _sync(AsyncClient.users)
    add_user = _sync(AsyncClient.add_user)
    alter_user = _sync(AsyncClient.alter_user)
    remove_user = _sync(AsyncClient.remove_user)

    def _wait_for(
        self,
        method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        if os.getpid() != self._process:
            raise ClientClosed("the client belongs to the process that forked: make a new one")
        call = _Call(functools.partial(method, self._client, *args, **kwargs))
        try:
            with self._lock:
                if self._is_closed:
                    raise ClientClosed("the client was closed: make a new one")
                self._loop.call_soon_threadsafe(call.start)
            return call.wait()
        finally:
            if not call.is_done:
                # Interrupted, or never begun.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(call.give_up)

"""The synchronous client: the asynchronous one, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

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


class Client:
    """`AsyncClient` for programs without an event loop; the same methods and options.

    Any number of threads may use one at once, and their calls go in common requests just as
    concurrent tasks' do. Close it, or use it as a context manager.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8080", **options: Unpack[ClientOptions]
    ) -> None:
        self._client = AsyncClient(url, **options)
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-client", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the calls under way, then let go of the connections. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self) -> None:
        await self._client.close()
        # Calls that were interrupted, and those of other threads: without a connection they end.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, late = await asyncio.wait(others, timeout=_LAST_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    @property
    def url(self) -> str:
        return self._client.url

    create_queue = _sync(AsyncClient.create_queue)
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
        with self._lock:
            if self._is_closed:
                raise ClientClosed("the client was closed: make a new one")
            answer = asyncio.run_coroutine_threadsafe(
                method(self._client, *args, **kwargs), self._loop
            )
        try:
            return answer.result()
        except CancelledError:
            # Only a close does that, to calls that would not end by themselves.
            raise ClientClosed("the client was closed in the meantime: make a new one") from None
        except BaseException:
            # Interrupted: nobody waits for it any more.
            answer.cancel()
            raise

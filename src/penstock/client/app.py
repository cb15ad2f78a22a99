"""An app: workers that run until a signal ends them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable, Iterator
from typing import TypeVar, Unpack

from penstock.client.async_client import AsyncClient
from penstock.client.options import ClientOptions, WorkerOptions
from penstock.client.worker import Handler, Worker, WorkerSettings
from penstock.errors import InvalidArgument

__all__ = ["App"]

_Handler = TypeVar("_Handler", bound=Handler)


class App:
    """Workers for any number of queues. ``url`` and ``options`` are those of `AsyncClient`.

    ::

        app = App("http://127.0.0.1:8080", username="user", password="password")

        @app.worker("orders", concurrency=8)
        async def ship(delivery):
            ...

        app.run()
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8080", **options: Unpack[ClientOptions]
    ) -> None:
        self._url = url
        self._options = options
        self._declared: list[tuple[Handler, WorkerSettings]] = []
        self._workers: list[Worker] = []

    def worker(
        self, queue: str, **settings: Unpack[WorkerOptions]
    ) -> Callable[[_Handler], _Handler]:
        """Declare a handler for the messages of a queue. Settings are those of `WorkerSettings`."""
        unknown = settings.keys() - set(WorkerSettings.__struct_fields__)
        if unknown:
            raise InvalidArgument(
                f"unknown setting {', '.join(sorted(unknown))}: "
                f"there are {', '.join(WorkerSettings.__struct_fields__)}"
            )
        declared = WorkerSettings(queue=queue, **settings)

        def declare(handler: _Handler) -> _Handler:
            self._declared.append((handler, declared))
            return handler

        return declare

    def run(self) -> None:
        """Work until SIGINT or SIGTERM, then let handlers finish. A second signal cancels them.

        A third signal kills the process, in case a handler cannot be cancelled.
        """
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Like `run`, inside a running event loop. When one worker fails, all of them stop."""
        if not self._declared:
            raise InvalidArgument("there is no worker: declare one with @app.worker(queue)")
        async with AsyncClient(self._url, **self._options) as client:
            self._workers = [
                Worker(client, handler, settings, random.Random())
                for handler, settings in self._declared
            ]
            with _signals(self.stop):
                running = [asyncio.create_task(worker.run()) for worker in self._workers]
                try:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    if not all(task.done() for task in running):
                        for worker in self._workers:
                            worker.end()
                    await asyncio.gather(*running)
                finally:
                    for task in running:
                        task.cancel()
                    await asyncio.gather(*running, return_exceptions=True)
                    self._workers = []

    def stop(self) -> None:
        """Do what a signal does: stop, and the second time cancel. Call it inside the loop."""
        for worker in self._workers:
            worker.stop()


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []
    seen = 0

    def catch() -> None:
        nonlocal seen
        seen += 1
        stop()
        if seen == 2:
            # What does not end now may never end: let a third signal kill the process.
            for number in caught:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
            caught.clear()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the main thread can; elsewhere signals are the caller's business.
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(number, catch)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)

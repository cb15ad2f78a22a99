"""An app of workers, run until a signal ends it."""

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
    """Handlers for queues. ``url`` and ``options`` are those of `AsyncClient`.

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
        """Have every delivery of a queue handled. Settings are those of `WorkerSettings`."""
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
        """Work until SIGINT or SIGTERM, then finish what runs. A second signal cancels it.

        A third one kills the process, if a handler does not let itself be cancelled.
        """
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """As `run`, in an event loop that runs already. When one worker fails, all of them stop."""
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
        """What a signal does: stop, and the second time at once. Call it inside the loop."""
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
            # What does not end now never may: a third signal is to kill.
            for number in caught:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
            caught.clear()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Only a main thread may; elsewhere the caller has signals of its own.
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(number, catch)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)

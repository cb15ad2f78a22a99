"""Slow reads without threads: a job is done when the simulator says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class SlowExecutor(ThreadPoolExecutor):
    """Never starts a thread; it is a pool only because an event loop insists on one."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self._jobs: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.append((future, lambda: fn(*args, **kwargs)))
        return future

    def work(self) -> None:
        """Do all that was submitted."""
        jobs, self._jobs = self._jobs, []
        for future, job in jobs:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except Exception as exc:
                    future.set_exception(exc)

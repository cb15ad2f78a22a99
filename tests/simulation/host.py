"""The machine that the store runs on: its disk, its threads of work, its beginning and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from penstock.storage.wal.log import Log, SyncMode
from penstock.storage.wal.store import WalStore
from tests.simulation.clients import Unanswered
from tests.simulation.clock import VirtualClock
from tests.simulation.committer import InlineCommitter
from tests.simulation.executor import SlowExecutor
from tests.simulation.files import SimulatedCrash, SimulatedFiles
from tests.simulation.history import Violation

T = TypeVar("T")

_MAX_TURNS = 10_000


class Host:
    """Runs calls, commits and reads in an order that follows from ``rng`` alone."""

    def __init__(
        self, rng: Random, clock: VirtualClock, committer: Callable[[Log], InlineCommitter]
    ) -> None:
        self.files = SimulatedFiles(rng)
        self.executor = SlowExecutor()
        self.log: Log | None = None
        self._rng = rng
        self._clock = clock
        self._committer_type = committer
        self._committer: InlineCommitter | None = None
        self._calls: dict[asyncio.Task[Any], None] = {}  # in the order they were begun

    @property
    def open_calls(self) -> int:
        return len(self._calls)

    @property
    def has_failed(self) -> bool:
        """Whether the store must refuse every write by now."""
        return self.log is not None and self.log.failure is not None

    async def start(self, sync: SyncMode) -> WalStore:
        """Raises what `WalStore.open` raises, and `SimulatedCrash`."""
        opening = asyncio.ensure_future(
            WalStore.open(
                self.files,
                clock=self._clock,
                rng=self._rng,
                sync=sync,
                segment_bytes=self._rng.choice([2048, 4096, 16384]),
                cache_bytes=self._rng.choice([0, 2000, 100_000]),
                committer=self._make_committer,
                random_bytes=self._rng.randbytes,
            )
        )
        self._calls[opening] = None
        for _ in range(_MAX_TURNS):
            await asyncio.sleep(0)
            if self._committer is not None and self._committer.has_work:
                self._committer.step()
            self.executor.work()
            if opening.done():
                del self._calls[opening]
                return opening.result()
        raise Violation("answer", "the store was never opened")

    def _make_committer(self, log: Log) -> InlineCommitter:
        self.log = log
        self._committer = self._committer_type(log)
        return self._committer

    def begin(self, call: Coroutine[Any, Any, Any]) -> None:
        self._calls[asyncio.ensure_future(call)] = None

    def commit(self) -> bool:
        """The disk gets its turn. True when all that was appended before is committed."""
        committer = self._committer
        if committer is None or not committer.has_work:
            return False
        # What runs beside the commits may take longer than some of them.
        committer.step(sync=self._rng.random() < 0.2, beside=self._rng.random() < 0.3)
        return committer.failure is None

    def collect(self) -> None:
        """Look at the calls that ended. Raises `Violation` and `SimulatedCrash`."""
        for task in [task for task in self._calls if task.done()]:
            del self._calls[task]
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Violation | SimulatedCrash):
                raise error
            if error is not None and not isinstance(error, Unanswered):
                raise Violation("unexpected error", repr(error)) from error

    async def finish(self, call: Coroutine[Any, Any, T], commit: Callable[[], Any]) -> T:
        """Make one more call and wait for its answer, and for those of all that are open."""
        task = asyncio.ensure_future(call)
        self._calls[task] = None
        for _ in range(_MAX_TURNS):
            await asyncio.sleep(0)
            commit()
            self.executor.work()
            self.collect()
            if not self._calls:
                return task.result()
        raise Violation("answer", "a call was never answered")

    async def stop(self, *, power: bool) -> None:
        """The process dies, or the power is lost. Calls that are open are never answered."""
        await self.drop_calls()
        self._committer = None
        self.files = self.files.crash() if power else self.files.kill()

    async def drop_calls(self) -> None:
        calls = list(self._calls)
        self._calls.clear()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

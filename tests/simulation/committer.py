"""A committer without a thread: the simulator decides when the disk gets its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.errors import StorageClosed, StorageError
from penstock.storage.answers import Done, conclude
from penstock.storage.end_of_turn import EndOfTurn
from penstock.storage.wal.committer import Committer
from penstock.storage.wal.log import Log, SyncMode

T = TypeVar("T")


class InlineCommitter(Committer):
    """Does what ``GroupCommitter`` does, in ``step``.

    A ``SimulatedCrash`` leaves ``step`` as it came, and nobody who waits is ever answered: so it is
    when a machine stops.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._failure: StorageError | None = None
        self._is_stopped = False
        self._end_of_turn = EndOfTurn()
        self._waiters: list[Done] = []
        self._calls: list[Callable[[], None]] = []
        self._beside: list[Callable[[], None]] = []
        self._refusals: list[Callable[[StorageError], None]] = []

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    @property
    def has_work(self) -> bool:
        """Whether somebody waits for the next ``step``."""
        return bool(self._waiters or self._calls or self._beside)

    def submit(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_when_committed(partial(conclude, future))
        return future

    def call_when_committed(self, done: Done) -> None:
        self._check()
        self._waiters.append(done)

    def before_commit(self, callback: Callable[[], None], size: int) -> None:
        self._end_of_turn.ask(callback)

    async def call(self, function: Callable[[], T]) -> T:
        self._check()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.append(partial(_run, function, answer))
        self._refusals.append(partial(_refuse, answer))
        return await answer

    async def beside(self, function: Callable[[], T]) -> T:
        self._check()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._beside.append(partial(_run, function, answer))
        return await answer

    async def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            if self._failure is None:
                self.step()
            self._log.close()
            self._run_beside()

    def step(self, *, sync: bool = False, beside: bool = True) -> None:
        """Commit all that was appended and answer; with ``sync``, as if the interval had passed.

        What may run beside commits runs before this one, or not yet.
        """
        if beside:
            self._run_beside()
        waiters, self._waiters = self._waiters, []
        calls, self._calls = self._calls, []
        refusals, self._refusals = self._refusals, []
        try:
            self._log.commit()
            if sync and self._log.sync_mode is SyncMode.INTERVAL:
                self._log.sync()
            for done in waiters:
                done(None)
            while calls:
                refusals.pop(0)
                calls.pop(0)()
            self._log.prepare()
        except StorageError as exc:
            self._failure = exc
            for done in waiters:
                done(exc)
            for refuse in refusals:
                refuse(exc)

    def _run_beside(self) -> None:
        beside, self._beside = self._beside, []
        for run in beside:
            run()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_stopped:
            raise StorageClosed("the store was closed: open it again")


def _run(function: Callable[[], T], answer: asyncio.Future[T]) -> None:
    try:
        result = function()
    except Exception as exc:
        _refuse(answer, exc)
    else:
        if not answer.done():
            answer.set_result(result)


def _refuse(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)

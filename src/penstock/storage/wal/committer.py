"""Group commit: one thread writes and syncs while the event loop goes on.

The loop appends to the log and submits; the writer thread commits whatever has gathered and answers
all who waited for it with a single wake-up of the loop. While it syncs, the next group gathers, so
the busier the log is, the more records share a sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.errors import StorageClosed, StorageFailed
from penstock.storage.wal.log import Log, SyncMode

__all__ = ["Committer", "ThreadCommitter"]

T = TypeVar("T")

DEFAULT_SYNC_INTERVAL_SECONDS = 0.1


class Committer(Protocol):
    """Runs the blocking half of a log. Its methods are called on the event loop."""

    @property
    def failure(self) -> BaseException | None:
        """What ended all committing, if something did."""
        ...

    def submit(self) -> asyncio.Future[None]:
        """A future that is done when all that was appended so far is committed, by the log's mode.

        Each caller has a future of its own and may cancel it. Raises ``StorageFailed``, at once or
        from the future, and ``StorageClosed``.
        """
        ...

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking function where commits run, after all that was appended so far.

        It is run even if the caller does not wait to the end. Its errors are the caller's.
        """
        ...

    async def stop(self) -> None:
        """Commit what is pending, close the log, and end. Later calls are refused. Idempotent."""
        ...


class _Call(NamedTuple):
    function: Callable[[], Any]
    answer: asyncio.Future[Any]


class ThreadCommitter(Committer):
    """Commits in a thread of its own, which waits without polling while there is nothing to do."""

    def __init__(
        self,
        log: Log,
        *,
        sync_interval_seconds: float = DEFAULT_SYNC_INTERVAL_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread. Must be called on the event loop that will use it."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._interval_seconds = sync_interval_seconds
        self._monotonic = monotonic
        self._sync_due: float | None = None  # only in interval mode, while something is unsynced
        self._failure: BaseException | None = None
        # Guards all below; the condition is that there is something to do.
        self._lock = Lock()
        self._work = Condition(self._lock)
        self._is_idle = False
        self._is_stopping = False
        self._waiters: list[asyncio.Future[None]] = []
        self._calls: list[_Call] = []
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._run, name="penstock-log-writer", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def submit(self) -> asyncio.Future[None]:
        future = self._loop.create_future()
        with self._lock:
            if self._failure is not None or self._is_stopping:
                raise self._refusal()
            self._waiters.append(future)
            if self._is_idle:
                self._is_idle = False
                self._work.notify()
        return future

    async def call(self, function: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()
        with self._lock:
            if self._failure is not None or self._is_stopping:
                raise self._refusal()
            self._calls.append(_Call(function, answer))
            self._work.notify()
        return await answer

    async def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            self._work.notify()
        # Shielded: the thread ends whether or not this caller waits for it.
        await asyncio.shield(self._stopped)
        self._thread.join()

    def _refusal(self) -> Exception:
        if self._failure is not None:
            return _failed(self._failure)
        return StorageClosed("the store was closed: open it again")

    # -- the writer thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
            self._close()
        except RuntimeError:
            # The loop was closed under us: nobody is left to hear anything. What was appended is
            # still worth keeping; the next start reads it.
            if not self._loop.is_closed():
                raise
            self._log.close()

    def _step(self) -> bool:
        """Serve one group; False when it was the last."""
        waiters, calls, is_stopping = self._next_group()
        try:
            self._commit()
            if waiters:
                self._loop.call_soon_threadsafe(_resolve, waiters)
                waiters = []
            while calls:
                self._answer(calls.pop(0))
            if not is_stopping:
                self._log.prepare()
        except BaseException as exc:  # whatever it is, nobody may be left waiting
            self._fail(exc, waiters, calls)
            return False
        return not is_stopping

    def _next_group(self) -> tuple[list[asyncio.Future[None]], list[_Call], bool]:
        with self._lock:
            while not (self._waiters or self._calls or self._is_stopping):
                timeout = None
                if self._sync_due is not None:
                    timeout = self._sync_due - self._monotonic()
                    if timeout <= 0:
                        break
                self._is_idle = True
                self._work.wait(timeout)
                self._is_idle = False
            waiters, self._waiters = self._waiters, []
            calls, self._calls = self._calls, []
            return waiters, calls, self._is_stopping

    def _commit(self) -> None:
        self._log.commit()
        if self._log.sync_mode is SyncMode.INTERVAL:
            now = self._monotonic()
            if self._sync_due is not None and now >= self._sync_due:
                self._log.sync()
                self._sync_due = None
            elif self._sync_due is None and self._log.synced < self._log.written:
                self._sync_due = now + self._interval_seconds

    def _answer(self, call: _Call) -> None:
        try:
            result = call.function()
        except Exception as exc:
            self._loop.call_soon_threadsafe(_reject, [call.answer], [exc])
        else:
            self._loop.call_soon_threadsafe(_resolve, [call.answer], result)

    def _fail(
        self, exc: BaseException, waiters: list[asyncio.Future[None]], calls: list[_Call]
    ) -> None:
        with self._lock:
            self._failure = exc
            refused: list[asyncio.Future[Any]] = [*waiters, *self._waiters]
            refused += [call.answer for call in (*calls, *self._calls)]
            self._waiters, self._calls = [], []
        errors: list[Exception] = [_failed(exc) for _ in refused]
        self._loop.call_soon_threadsafe(_reject, refused, errors)

    def _close(self) -> None:
        error: Exception | None = None
        try:
            self._log.close()
        except Exception as exc:
            error = exc
        if error is None:
            self._loop.call_soon_threadsafe(_resolve, [self._stopped])
        else:
            self._loop.call_soon_threadsafe(_reject, [self._stopped], [error])


def _resolve(futures: list[asyncio.Future[Any]], result: object = None) -> None:
    for future in futures:
        if not future.done():  # a caller may have cancelled its own
            future.set_result(result)


def _reject(futures: list[asyncio.Future[Any]], errors: list[Exception]) -> None:
    for future, error in zip(futures, errors, strict=True):
        if not future.done():
            future.set_exception(error)


def _failed(cause: BaseException) -> StorageFailed:
    if isinstance(cause, StorageFailed):
        error = StorageFailed(*cause.args)
        error.__cause__ = cause.__cause__
    else:
        error = StorageFailed(
            f"the log's writer failed ({cause!r}): open the store again; what was stored before "
            "can still be read"
        )
        error.__cause__ = cause
    return error

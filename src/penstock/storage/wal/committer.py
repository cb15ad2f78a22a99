"""Group commit: calls that arrive together share a sync.

Callers that were answered together tend to come back together, over a few turns of the event loop.
So a small group stays open until it has as many calls as the one before, or until a turn adds none.
Then it is written and synced right on the loop, which has nothing else to do: handing it to a
thread and hearing back would take longer than the sync. Everything else goes to the writer thread:
a large group, a new segment, whatever comes while the thread is busy or the disk is slow. The loop
goes on meanwhile, and what it appends until the thread is done is the next group. Either way, the
busier the log is, the more records share a sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Condition, Lock, Thread
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.errors import StorageClosed, StorageFailed
from penstock.storage.answers import Done, conclude
from penstock.storage.wal.log import Log, SyncMode

__all__ = ["Committer", "GroupCommitter"]

T = TypeVar("T")

DEFAULT_SYNC_INTERVAL_SECONDS = 0.1

# A larger group takes so long to write that the loop should go on meanwhile.
DEFAULT_INLINE_BYTES = 2**20

# No group is kept open for longer, however many calls may still join it.
_LONGEST_OPEN_SECONDS = 0.002

# A commit on the loop is slow if it takes longer than a millisecond, and as long again for every
# quarter of a mebibyte. A slow disk may block the loop for a tenth of the time; beyond that, the
# thread takes over. Time is saved up for the odd slow one: this much of it.
_SLOW_SECONDS = 0.001
_SLOW_BYTES = 2**18
_RESTS_AFTER_SLOW = 10
_SAVED_SECONDS = 0.1


class Committer(Protocol):
    """Runs the blocking half of a log. Its methods are called on the event loop."""

    @property
    def failure(self) -> BaseException | None:
        """Why nothing can be committed any more, if that is so."""
        ...

    def submit(self) -> asyncio.Future[None]:
        """A future that is done when everything appended so far is committed, by the log's mode.

        Each caller has its own future and may cancel it. Raises ``StorageFailed``, at once or from
        the future, and ``StorageClosed``.
        """
        ...

    def call_when_committed(self, done: Done) -> None:
        """As `submit`, but calls ``done`` instead: in the same turn of the loop, if it commits."""
        ...

    def before_commit(self, callback: Callable[[], None], size: int) -> None:
        """Call ``callback`` once when the group is complete: it may still append to it, and submit.

        ``size`` is roughly how much it will append, besides what earlier calls announced. If it
        raises, the loop's exception handler is called; the group and other callbacks go on.
        """
        ...

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking function where commits run, after everything appended so far.

        It runs even if the caller is cancelled. Its errors are raised to the caller.
        """
        ...

    async def beside(self, function: Callable[[], T]) -> T:
        """Run a blocking function that commits need not wait for: they go on meanwhile.

        One runs at a time. It may run even if the caller is cancelled. Its errors are raised to the
        caller.
        """
        ...

    async def stop(self) -> None:
        """Commit what is pending, close the log, and stop. Later calls are refused. Idempotent."""
        ...


class _Call(NamedTuple):
    function: Callable[[], Any]
    answer: asyncio.Future[Any]


class GroupCommitter(Committer):
    """Commits on the loop or in a thread of its own, never in both at once.

    While the thread waits for work, holding ``_lock`` is enough to use the log in its place.
    """

    def __init__(
        self,
        log: Log,
        *,
        inline_bytes: int = DEFAULT_INLINE_BYTES,
        sync_interval_seconds: float = DEFAULT_SYNC_INTERVAL_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread. Must be called on the event loop that will use it."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._inline_bytes = inline_bytes
        self._interval_seconds = sync_interval_seconds
        self._monotonic = monotonic
        self._failure: BaseException | None = None
        # The open group.
        self._is_open = False
        self._has_grown = False  # in this turn of the loop
        self._joined = 0
        self._expected = 0  # how many joined the group before
        self._opened_at = 0.0
        self._submitted: list[Done] = []
        self._callbacks: dict[Callable[[], None], None] = {}
        self._announced = 0  # bytes that the callbacks will append
        self._inline_again = 0.0  # when to try committing on the loop again
        # Guards all below; the condition is that the thread has work.
        self._lock = Lock()
        self._work = Condition(self._lock)
        self._is_idle = False
        self._is_stopping = False
        self._sync_due: float | None = None  # only in interval mode, while something is unsynced
        self._waiters: list[Done] = []
        self._calls: list[_Call] = []
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._run, name="penstock-log-writer", daemon=True)
        self._thread.start()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="penstock-log-upkeep")

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    # -- the loop ----------------------------------------------------------------------------------

    def submit(self) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self.call_when_committed(partial(conclude, future))
        return future

    def call_when_committed(self, done: Done) -> None:
        self._check()
        self._submitted.append(done)
        self._grow()

    def before_commit(self, callback: Callable[[], None], size: int) -> None:
        self._callbacks[callback] = None
        self._announced += size
        self._grow()

    async def call(self, function: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()
        with self._lock:
            self._check()  # under the lock, or the thread could fail and end in between
            self._calls.append(_Call(function, answer))
            self._work.notify()
        return await answer

    async def beside(self, function: Callable[[], T]) -> T:
        self._check()
        return await self._loop.run_in_executor(self._beside, function)

    async def stop(self) -> None:
        self._close_group()
        with self._lock:
            self._is_stopping = True
            self._work.notify()
        try:
            # Shielded, so that the thread ends even if this caller is cancelled.
            await asyncio.shield(self._stopped)
            self._thread.join()
        finally:
            # Even if the log could not be closed: the caller will let others have the directory.
            self._beside.shutdown()

    def _check(self) -> None:
        if self._failure is not None:
            raise _failed(self._failure)
        if self._is_stopping:
            raise StorageClosed("the store was closed: open it again")

    def _grow(self) -> None:
        self._has_grown = True
        self._joined += 1
        if not self._is_open:
            self._is_open = True
            self._opened_at = self._monotonic()
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if not self._is_open:
            return  # `stop` closed it early
        has_grown, self._has_grown = self._has_grown, False
        if has_grown and self._may_wait():
            self._loop.call_soon(self._end_turn)
        else:
            self._close_group()

    def _close_group(self) -> None:
        expected = self._joined
        try:
            callbacks, self._callbacks = self._callbacks, {}
            for callback in callbacks:
                try:
                    callback()
                except Exception as exc:  # the others must still run
                    message = "a callback failed that was to complete a group of the log"
                    self._loop.call_exception_handler({"message": message, "exception": exc})
        finally:
            self._is_open = False
            self._announced = 0
            self._expected, self._joined = expected, 0
            if self._submitted:
                waiters, self._submitted = self._submitted, []
                self._hand_over(waiters)

    def _may_wait(self) -> bool:
        """Whether to keep the group open for another turn."""
        return (
            self._joined < self._expected
            and self._announced <= self._inline_bytes
            and self._monotonic() - self._opened_at < _LONGEST_OPEN_SECONDS
        )

    def _hand_over(self, waiters: list[Done]) -> None:
        """Commit for these, here or in the thread."""
        with self._lock:
            if self._failure is not None:
                self._fail(self._failure, waiters)
                return
            if not self._is_idle or not self._is_quick():
                self._waiters += waiters
                self._work.notify()
                return
            began, start, due = self._monotonic(), self._log.written, self._sync_due
            try:
                self._commit()
            except BaseException as exc:  # nobody may be left waiting
                self._fail(exc, waiters)
                if isinstance(exc, Exception):
                    return
                raise  # a signal is ending the process: let the loop see it
            ended = self._monotonic()
            size = self._log.written - start
            if not self._log.is_prepared or self._sync_due != due:
                self._work.notify()
        _tell(waiters)
        if ended - began > _SLOW_SECONDS * (1 + size / _SLOW_BYTES):
            since = max(self._inline_again, began - _SAVED_SECONDS)
            self._inline_again = since + _RESTS_AFTER_SLOW * (ended - began)

    def _is_quick(self) -> bool:
        now = self._monotonic()
        if self._sync_due is not None and now >= self._sync_due:
            return False  # the sync covers everything since the last one, so it is slow
        return now >= self._inline_again and self._log.is_small(self._inline_bytes)

    # -- the writer thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._step():
                pass
            self._close()
        except RuntimeError:
            # The loop was closed under us, so nobody can be told anything. What was appended is
            # still worth writing; the next start reads it.
            if not self._loop.is_closed():
                raise
            self._log.close()

    def _step(self) -> bool:
        """Serve one group. False if it was the last."""
        waiters, calls, is_stopping = self._next_group()
        try:
            if self._failure is not None:  # it failed on the loop, which has told everyone
                return False
            self._commit()
            if waiters:
                self._loop.call_soon_threadsafe(_tell, waiters)
                waiters = []
            while calls:
                self._answer(calls.pop(0))
            if not is_stopping:
                self._log.prepare()
        except BaseException as exc:  # nobody may be left waiting
            with self._lock:
                self._calls = calls + self._calls
                self._fail(exc, waiters)
            return False
        return not is_stopping

    def _next_group(self) -> tuple[list[Done], list[_Call], bool]:
        with self._lock:
            while not self._has_work():
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

    def _has_work(self) -> bool:
        return bool(
            self._waiters
            or self._calls
            or self._is_stopping
            or self._failure is not None
            or not self._log.is_prepared
        )

    def _answer(self, call: _Call) -> None:
        try:
            result = call.function()
        except Exception as exc:
            self._loop.call_soon_threadsafe(_refuse, call.answer, exc)
        else:
            self._loop.call_soon_threadsafe(_resolve, call.answer, result)

    def _close(self) -> None:
        error: Exception | None = None
        try:
            self._log.close()
        except Exception as exc:
            error = exc
        if error is None:
            self._loop.call_soon_threadsafe(_resolve, self._stopped, None)
        else:
            self._loop.call_soon_threadsafe(_refuse, self._stopped, error)

    # -- either of the two -------------------------------------------------------------------------

    def _commit(self) -> None:
        self._log.commit()
        if self._log.sync_mode is SyncMode.INTERVAL:
            now = self._monotonic()
            if self._sync_due is not None and now >= self._sync_due:
                self._log.sync()
                self._sync_due = None
            elif self._sync_due is None and self._log.synced < self._log.written:
                self._sync_due = now + self._interval_seconds

    def _fail(self, exc: BaseException, waiters: list[Done]) -> None:
        """Refuse everybody who waits, and all later calls. The lock is held."""
        self._failure = exc
        refused = [*waiters, *self._waiters]
        refused += [partial(conclude, call.answer) for call in self._calls]
        self._waiters, self._calls = [], []
        self._work.notify()
        self._loop.call_soon_threadsafe(_tell, refused, exc)


def _tell(waiters: list[Done], failure: BaseException | None = None) -> None:
    for done in waiters:
        # An error of its own for each: a shared one would collect everybody's traceback.
        done(None if failure is None else _failed(failure))


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():  # a caller may have cancelled it
        future.set_result(result)


def _refuse(future: asyncio.Future[Any], error: Exception) -> None:
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

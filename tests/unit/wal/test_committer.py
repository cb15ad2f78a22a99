from __future__ import annotations

import asyncio
import errno
import gc
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.errors import DiskFull, StorageClosed, StorageFailed
from penstock.storage.wal.committer import GroupCommitter
from penstock.storage.wal.files import Files
from penstock.storage.wal.log import Log, SyncMode
from tests.simulation.committer import InlineCommitter
from tests.simulation.files import Operation, SimulatedFiles, fail_with
from tests.unit.wal.logs import KIND, SEGMENT_BYTES, commit, open_log, payloads, read


@asynccontextmanager
async def running(log: Log, **options: Any) -> AsyncIterator[GroupCommitter]:
    committer = GroupCommitter(log, **options)
    try:
        await idle(committer)
        yield committer
    finally:
        await committer.stop()


async def idle(committer: GroupCommitter) -> None:
    """Until the thread has nothing to do. It tells nobody, so one has to look."""
    while not committer._is_idle:  # noqa: ASYNC110
        await asyncio.sleep(0)


def prepared_log(files: Files, *, segment_bytes: int = SEGMENT_BYTES) -> Log:
    """One that was written to."""
    log = open_log(files, segment_bytes=segment_bytes)
    commit(log, b"first")
    return log


IN_THREAD = {"inline_bytes": 0}


class Watch:
    """Which thread makes each write that is synced."""

    def __init__(self, files: SimulatedFiles) -> None:
        self.threads: list[str] = []
        files.fault = self

    def __call__(self, operation: Operation) -> None:
        if operation.kind == "sync":
            self.threads.append(threading.current_thread().name)

    @property
    def on_loop(self) -> list[bool]:
        return [name == threading.current_thread().name for name in self.threads]


class Gate:
    """Holds the writer thread at its next write until it is opened."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()

    def __call__(self, operation: Operation) -> None:
        if operation.kind == "write":
            self.is_reached.set()
            assert self._is_open.wait(10)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.is_reached.wait, 10)

    def open(self) -> None:
        self._is_open.set()


async def test_a_submit_is_answered_when_all_before_it_is_durable(
    simulated: SimulatedFiles,
) -> None:
    log = open_log(simulated)
    async with running(log) as committer:
        log.append(KIND, b"a")
        log.append(KIND, b"b")
        await committer.submit()
        assert log.synced == log.end
        assert payloads(simulated.crash()) == [b"a", b"b"]
        simulated.is_down = False


async def test_many_tasks_share_few_syncs(simulated: SimulatedFiles) -> None:
    # Given a writer that is busy with a first group
    log = prepared_log(simulated)
    gate = Gate()
    async with running(log, **IN_THREAD) as committer:
        simulated.fault = gate
        log.append(KIND, b"one")
        one = committer.submit()
        await gate.reached()
        # When a hundred others submit in the meantime
        operations = simulated.operations
        others = []
        for number in range(100):
            log.append(KIND, b"%d" % number)
            others.append(committer.submit())
        assert not any(future.done() for future in (one, *others))
        simulated.fault = None
        gate.open()
        await asyncio.gather(one, *others)
        # Then they were all in one group
        assert simulated.operations - operations <= 3
    assert len(payloads(simulated)) == 102


async def test_order_is_kept_by_many_tasks_over_many_segments(files: Files) -> None:
    log = open_log(files)
    appended: list[bytes] = []

    async def publish(task: int) -> None:
        rng = random.Random(task)
        for number in range(30):
            data = b"%d/%d/" % (task, number) + bytes(rng.randint(0, 300))
            log.append(KIND, data)
            appended.append(data)
            await committer.submit()

    async with running(log) as committer:
        await asyncio.gather(*(publish(task) for task in range(20)))
    assert payloads(files) == appended


async def test_all_that_one_turn_of_the_loop_submits_is_one_commit_on_the_loop(
    simulated: SimulatedFiles,
) -> None:
    log = prepared_log(simulated)
    async with running(log) as committer:
        watch = Watch(simulated)
        # Given a callback for the end of the turn, which appends and submits as well
        last: list[asyncio.Future[None]] = []

        def append_last() -> None:
            log.append(KIND, b"last")
            last.append(committer.submit())

        committer.before_commit(append_last, 4)
        # When three more submit in the same turn
        waiting = []
        for data in (b"a", b"b", b"c"):
            log.append(KIND, data)
            waiting.append(committer.submit())
        assert not watch.threads
        await asyncio.gather(*waiting)
        # Then one sync was for all of them, and no thread took part
        assert last[0].done()
        assert watch.on_loop == [True]
        assert payloads(simulated.crash()) == [b"first", b"a", b"b", b"c", b"last"]
        simulated.is_down = False


async def test_a_callback_that_fails_takes_no_other_with_it(simulated: SimulatedFiles) -> None:
    log = prepared_log(simulated)
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    committer = GroupCommitter(log)
    # Given a callback that fails, and one after it
    problem = ValueError("planted")
    last: list[asyncio.Future[None]] = []

    def fail() -> None:
        raise problem

    def append_last() -> None:
        log.append(KIND, b"last")
        last.append(committer.submit())

    committer.before_commit(fail, 0)
    committer.before_commit(append_last, 4)
    # When the group is closed, by the end of a turn or by the end of all
    log.append(KIND, b"a")
    await committer.submit()
    await last[0]
    committer.before_commit(fail, 0)
    committer.before_commit(append_last, 4)
    await committer.stop()
    await last[1]
    # Then the other was called all the same, and the loop was told of the failure
    assert [context["exception"] for context in told] == [problem, problem]
    assert payloads(simulated) == [b"first", b"a", b"last", b"last"]


async def come(committer: GroupCommitter, log: Log, count: int, *, turns: bool) -> None:
    """All at once, or each a turn of the loop after the other; until all are answered."""
    waiting = []
    for number in range(count):
        log.append(KIND, b"%d" % number)
        waiting.append(committer.submit())
        if turns:
            await asyncio.sleep(0)
    await asyncio.gather(*waiting)


async def test_a_group_waits_for_as_many_as_the_one_before_had(simulated: SimulatedFiles) -> None:
    log = prepared_log(simulated)
    async with running(log) as committer:
        # Given five who were answered together
        await come(committer, log, 5, turns=False)
        watch = Watch(simulated)
        # When they come back one turn after the other, then all have one commit
        await come(committer, log, 5, turns=True)
        assert watch.on_loop == [True]


async def test_a_group_waits_for_nobody_once_a_turn_brings_nothing(
    simulated: SimulatedFiles,
) -> None:
    log = prepared_log(simulated)
    async with running(log) as committer:
        await come(committer, log, 5, turns=False)
        watch = Watch(simulated)
        await come(committer, log, 1, turns=False)
        assert watch.on_loop == [True]
        # And the next expects no more than that one
        await come(committer, log, 2, turns=True)
        assert watch.on_loop == [True, True, True]


async def test_no_group_is_kept_open_for_long(simulated: SimulatedFiles) -> None:
    now = 100.0
    log = prepared_log(simulated)
    async with running(log, monotonic=lambda: now) as committer:
        await come(committer, log, 10, turns=False)
        watch = Watch(simulated)
        waiting = []
        for number in range(10):
            log.append(KIND, b"%d" % number)
            waiting.append(committer.submit())
            now += 0.0009
            await asyncio.sleep(0)
        assert waiting[0].done()
        await asyncio.gather(*waiting)
        assert len(watch.threads) > 1


async def test_a_large_group_and_a_new_segment_are_left_to_the_thread(
    simulated: SimulatedFiles,
) -> None:
    log = prepared_log(simulated)
    async with running(log, inline_bytes=500) as committer:
        watch = Watch(simulated)
        log.append(KIND, bytes(600))
        await committer.submit()
        await idle(committer)
        log.roll()
        log.append(KIND, b"small")
        await committer.submit()
        assert watch.threads
        assert not any(watch.on_loop)


class SlowDisk:
    """A disk whose syncs take as long as one likes, on a clock of its own."""

    def __init__(self, simulated: SimulatedFiles) -> None:
        self.now = 100.0
        self.sync_seconds = 0.0
        self.log = prepared_log(simulated, segment_bytes=2**24)
        self._watch = Watch(simulated)
        simulated.fault = self._slow

    def _slow(self, operation: Operation) -> None:
        self._watch(operation)
        self.now += self.sync_seconds if operation.kind == "sync" else 0

    async def is_on_loop(self, committer: GroupCommitter, body: bytes = b"x") -> bool:
        """Whether a commit with such a record runs on the loop."""
        await idle(committer)
        self._watch.threads.clear()
        self.log.append(KIND, body)
        await committer.submit()
        return self._watch.on_loop[:1] == [True]


async def test_slow_commits_have_a_tenth_of_the_loops_time_and_the_thread_gets_the_others(
    simulated: SimulatedFiles,
) -> None:
    # Given a disk that takes a quarter of a second
    disk = SlowDisk(simulated)
    async with running(disk.log, monotonic=lambda: disk.now) as committer:
        disk.sync_seconds = 0.25
        assert await disk.is_on_loop(committer)
        # When it is quick again, then the thread has the next ones all the same
        disk.sync_seconds = 0
        assert not await disk.is_on_loop(committer)
        disk.now += 2.1
        assert not await disk.is_on_loop(committer)
        # And the loop has them again ten times as long after it began, less what was saved up
        disk.now += 0.1
        assert await disk.is_on_loop(committer)


async def test_an_odd_slow_commit_is_forgiven_and_a_slow_disk_is_not(
    simulated: SimulatedFiles,
) -> None:
    disk = SlowDisk(simulated)
    async with running(disk.log, monotonic=lambda: disk.now) as committer:
        disk.sync_seconds = 0.004
        assert [await disk.is_on_loop(committer) for _ in range(5)] == [True] * 3 + [False] * 2
        disk.now += 0.1
        assert await disk.is_on_loop(committer)


async def test_a_larger_group_may_take_longer(simulated: SimulatedFiles) -> None:
    disk = SlowDisk(simulated)
    async with running(disk.log, monotonic=lambda: disk.now) as committer:
        disk.sync_seconds = 0.004
        large = bytes(2**20 - 2**10)
        assert [await disk.is_on_loop(committer, large) for _ in range(9)] == [True] * 9


@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_a_commit_that_fails_on_the_loop_ends_everything(
    simulated: SimulatedFiles, kind: str
) -> None:
    threads = threading.active_count()
    log = prepared_log(simulated)
    committer = GroupCommitter(log)
    await idle(committer)
    simulated.fault = fail_with(errno.EIO, kind=kind)
    log.append(KIND, b"lost")
    waiting = [committer.submit(), committer.submit()]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [StorageFailed] * 2
    with pytest.raises(StorageFailed):
        committer.submit()
    with pytest.raises(StorageFailed):
        await committer.call(lambda: None)
    await committer.stop()
    assert threading.active_count() == threads


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("exit_with", [KeyboardInterrupt, SystemExit])
def test_a_signal_that_ends_the_process_in_a_commit_on_the_loop_is_heard_and_leaves_no_gap(
    simulated: SimulatedFiles, kind: str, exit_with: type[BaseException]
) -> None:
    # Given a commit on the loop, in the middle of which the handler of a signal raises
    parts: list[tuple[Log, GroupCommitter]] = []
    callers: list[asyncio.Future[None]] = []

    def handle_signal(operation: Operation) -> None:
        if operation.kind == kind:
            raise exit_with

    async def interrupted() -> None:
        log = prepared_log(simulated)
        committer = GroupCommitter(log)
        parts.append((log, committer))
        await idle(committer)
        simulated.fault = handle_signal
        log.append(KIND, bytes(1000))
        callers.append(committer.submit())
        await asyncio.wait(callers)

    # When others go on, as they do while the loop is wound up
    async def wind_up() -> None:
        simulated.fault = None
        log, committer = parts[0]
        with pytest.raises(StorageFailed):
            log.append(KIND, b"behind it")
        with pytest.raises(StorageFailed):
            committer.submit()
        await committer.stop()

    with asyncio.Runner() as runner:
        # Then it ends the loop, as it would anywhere else
        with pytest.raises(exit_with):
            runner.run(interrupted())
        runner.run(wind_up())
    # And who waited is told
    assert isinstance(callers[0].exception(), StorageFailed)
    # And the log is none that pretends to be closed in order with a hole in it
    assert payloads(simulated)[0] == b"first"
    assert payloads(simulated.crash())[0] == b"first"


async def test_a_submit_with_nothing_to_commit_is_answered(files: Files) -> None:
    async with running(open_log(files)) as committer:
        await committer.submit()
        await committer.submit()


async def test_cancelling_one_who_waits_hurts_no_other(simulated: SimulatedFiles) -> None:
    # Given two who wait for the same group
    log = open_log(simulated)
    gate = Gate()
    async with running(log, **IN_THREAD) as committer:
        simulated.fault = gate
        log.append(KIND, b"a")
        one, other = committer.submit(), committer.submit()
        await gate.reached()
        # When one gives up
        one.cancel()
        gate.open()
        # Then the other is answered, the record is stored, and the writer goes on
        await other
        assert one.cancelled()
        log.append(KIND, b"b")
        await committer.submit()
    assert payloads(simulated) == [b"a", b"b"]


@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_after_a_failure_everything_pending_and_later_is_refused(
    simulated: SimulatedFiles, kind: str
) -> None:
    # Given a log that holds something, and a group on its way whose write or sync will fail
    log = open_log(simulated)
    async with running(log, **IN_THREAD) as committer:
        position = log.append(KIND, b"safe")
        await committer.submit()
        gate = Gate()
        broken = fail_with(errno.EIO, kind=kind)

        def fault(operation: Operation) -> None:
            gate(operation)
            broken(operation)

        simulated.fault = fault
        log.append(KIND, b"lost")
        waiting = [committer.submit(), committer.submit()]
        await gate.reached()
        log.append(KIND, b"next group")
        waiting.append(committer.submit())
        call = asyncio.ensure_future(committer.call(lambda: None))
        await asyncio.sleep(0)
        gate.open()
        # Then all of them are refused
        results = await asyncio.gather(*waiting, call, return_exceptions=True)
        assert [type(result) for result in results] == [StorageFailed] * 4
        assert isinstance(committer.failure, StorageFailed)
        # And so is whatever follows
        with pytest.raises(StorageFailed):
            committer.submit()
        with pytest.raises(StorageFailed):
            await committer.call(lambda: None)
        with pytest.raises(StorageFailed):
            log.append(KIND, b"x")
        # But reading is possible
        assert read(simulated, position) == b"safe"
    assert payloads(simulated.crash())[0] == b"safe"


async def test_a_call_runs_after_what_was_appended_and_answers(files: Files) -> None:
    log = open_log(files)
    async with running(log) as committer:
        log.append(KIND, b"a")
        assert await committer.call(lambda: payloads(files)) == [b"a"]
        name = await committer.call(lambda: threading.current_thread().name)
        assert name != threading.current_thread().name


async def test_an_error_of_a_call_is_its_callers_alone(files: Files) -> None:
    log = open_log(files)

    def fail() -> None:
        raise LookupError("mine")

    async with running(log) as committer:
        with pytest.raises(LookupError, match="mine"):
            await committer.call(fail)
        log.append(KIND, b"a")
        await committer.submit()
        assert committer.failure is None


async def test_a_full_disk_is_told_to_who_asks_and_fails_nothing(
    simulated: SimulatedFiles,
) -> None:
    simulated.capacity_bytes = 2 * SEGMENT_BYTES
    log = open_log(simulated)
    async with running(log) as committer:
        log.roll()
        log.append(KIND, bytes(3000))
        log.roll()
        await committer.submit()
        with pytest.raises(DiskFull):
            await committer.call(log.reserve)
        log.append(KIND, b"ack")
        await committer.submit()
        assert committer.failure is None


async def test_stopping_commits_what_is_pending_and_ends_the_thread(files: Files) -> None:
    log = open_log(files)
    threads = threading.active_count()
    committer = GroupCommitter(log)
    log.append(KIND, b"a")
    submitted = committer.submit()
    log.append(KIND, b"not even submitted")
    await committer.stop()
    await submitted
    await committer.stop()
    assert threading.active_count() == threads
    assert payloads(files) == [b"a", b"not even submitted"]
    with pytest.raises(StorageClosed):
        committer.submit()
    with pytest.raises(StorageClosed):
        await committer.call(lambda: None)
    with pytest.raises(StorageClosed):
        log.append(KIND, b"x")


async def test_stopping_waits_for_what_is_still_to_be_appended(files: Files) -> None:
    log = open_log(files)
    committer = GroupCommitter(log)
    answers: list[asyncio.Future[None]] = []

    def append() -> None:
        log.append(KIND, b"late")
        answers.append(committer.submit())

    committer.before_commit(append, 4)
    await committer.stop()
    await answers[0]
    assert payloads(files) == [b"late"]


async def test_a_failure_while_stopping_is_told(simulated: SimulatedFiles) -> None:
    log = open_log(simulated)
    committer = GroupCommitter(log)
    log.append(KIND, b"a")
    submitted = committer.submit()
    simulated.fault = fail_with(errno.EIO, kind="write")
    await committer.stop()
    with pytest.raises(StorageFailed):
        await submitted
    assert isinstance(committer.failure, StorageFailed)


def test_a_loop_that_ends_without_stopping_leaves_no_noise(files: Files) -> None:
    async def forget() -> None:
        log = open_log(files)
        committer = GroupCommitter(log)
        log.append(KIND, b"a")
        await committer.submit()
        log.append(KIND, b"b")
        committer.submit()

    threads = set(threading.enumerate())
    asyncio.run(forget())
    for thread in set(threading.enumerate()) - threads:
        thread.join(0.2)
    gc.collect()
    assert payloads(files)[:1] == [b"a"]


async def test_in_mode_interval_the_answer_comes_before_the_sync_and_the_sync_follows_when_idle(
    simulated: SimulatedFiles,
) -> None:
    # Given a writer that syncs every hundredth of a second
    log = open_log(simulated, sync_mode=SyncMode.INTERVAL)
    is_synced = threading.Event()
    syncs_before_answer: list[bool] = []

    def note(operation: Operation) -> None:
        if operation.kind == "sync":
            is_synced.set()

    simulated.fault = note
    async with running(log, sync_interval_seconds=0.01) as committer:
        # When something is committed and then nothing more happens
        log.append(KIND, b"a")
        await committer.submit()
        syncs_before_answer.append(is_synced.is_set())
        # Then it is synced all the same
        assert await asyncio.to_thread(is_synced.wait, 10)
        await committer.submit()
        assert log.synced == log.end
        assert payloads(simulated.crash()) == [b"a"]
        simulated.is_down = False


async def test_in_mode_interval_a_busy_writer_syncs_when_it_is_due(
    simulated: SimulatedFiles,
) -> None:
    # Given a clock that is moved by hand
    now = 100.0
    log = open_log(simulated, sync_mode=SyncMode.INTERVAL)
    committer = GroupCommitter(log, sync_interval_seconds=1000, monotonic=lambda: now)
    log.append(KIND, b"a")
    await committer.submit()
    now += 999
    log.append(KIND, b"b")
    await committer.submit()
    await committer.call(lambda: None)
    assert log.synced < log.written
    # When the interval has passed, then the next commit syncs
    now += 2
    log.append(KIND, b"c")
    await committer.submit()
    assert log.synced == log.end
    await committer.stop()


async def test_in_mode_interval_the_loop_writes_and_leaves_the_sync_to_the_thread(
    simulated: SimulatedFiles,
) -> None:
    # Given a log that was written to, on the loop
    now = 100.0
    log = open_log(simulated, sync_mode=SyncMode.INTERVAL)
    async with running(log, sync_interval_seconds=1000, monotonic=lambda: now) as committer:
        watch = Watch(simulated)
        await come(committer, log, 5, turns=False)
        assert not watch.threads
        # When it is time to sync, and more is written
        await idle(committer)
        now += 1001
        await come(committer, log, 1, turns=False)
        # Then the thread has synced it all
        assert watch.on_loop == [False]
        assert log.synced == log.end


async def test_in_mode_never_nothing_is_synced(simulated: SimulatedFiles) -> None:
    log = open_log(simulated, sync_mode=SyncMode.NEVER)
    synced = log.synced
    simulated.fault = fail_with(errno.EIO, kind="sync")
    async with running(log) as committer:
        log.append(KIND, b"a")
        await committer.submit()
        assert log.synced == synced < log.written
    assert payloads(simulated.kill()) == [b"a"]


async def test_the_inline_committer_answers_only_when_it_is_stepped(
    simulated: SimulatedFiles,
) -> None:
    log = open_log(simulated)
    committer = InlineCommitter(log)
    log.append(KIND, b"a")
    submitted = committer.submit()
    call = asyncio.ensure_future(committer.call(lambda: payloads(simulated)))
    await asyncio.sleep(0)
    assert committer.has_work
    assert not submitted.done()
    committer.step()
    assert submitted.done()
    assert await call == [b"a"]
    simulated.fault = fail_with(errno.EIO, kind="sync")
    log.append(KIND, b"b")
    submitted = committer.submit()
    committer.step()
    with pytest.raises(StorageFailed):
        await submitted
    with pytest.raises(StorageFailed):
        committer.submit()
    await committer.stop()


async def test_what_runs_beside_commits_holds_up_none_and_answers_who_asked(files: Files) -> None:
    log = prepared_log(files)
    async with running(log) as committer:
        # Given something that takes its time beside the commits
        may_end = threading.Event()
        asked = asyncio.create_task(committer.beside(lambda: may_end.wait(10)))
        # When something is committed
        log.append(KIND, b"meanwhile")
        await committer.submit()
        # Then that is done first
        assert not asked.done()
        may_end.set()
        assert await asked
        # And an error is for who asked, not for the log
        with pytest.raises(ZeroDivisionError):
            await committer.beside(lambda: 1 // 0)
        log.append(KIND, b"after it")
        await committer.submit()
    assert payloads(files) == [b"first", b"meanwhile", b"after it"]
    # And nothing runs once it has stopped
    with pytest.raises(StorageClosed):
        await committer.beside(lambda: None)


async def test_a_stop_waits_for_what_runs_beside_even_if_the_log_cannot_be_closed(
    simulated: SimulatedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given work whose caller has left, and which ends only when somebody waits for it
    committer = GroupCommitter(prepared_log(simulated))
    is_running, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()
    shutdown = committer._beside.shutdown

    def work() -> None:
        is_running.set()
        assert may_end.wait(10)
        has_ended.set()

    def wait_for_work() -> None:
        may_end.set()
        shutdown()

    monkeypatch.setattr(committer._beside, "shutdown", wait_for_work)
    caller = asyncio.create_task(committer.beside(work))
    assert await asyncio.to_thread(is_running.wait, 10)
    caller.cancel()
    # When the log cannot be closed
    simulated.fault = fail_with(errno.EIO, kind="write")
    with pytest.raises(StorageFailed):
        await committer.stop()
    # Then nobody is told before the work has ended
    was_awaited = has_ended.is_set()
    may_end.set()
    assert was_awaited

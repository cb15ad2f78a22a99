"""One history: clients, a store, a disk that fails, and a checker that believes only answers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from penstock.core.message import Message
from penstock.core.queue import Queue
from penstock.errors import CorruptLog
from penstock.storage.embedded import EmbeddedStore
from penstock.storage.memory import MemoryStore
from penstock.storage.wal.log import Log
from penstock.storage.wal.store import WalStore
from tests.simulation.checker import Checker
from tests.simulation.clients import Clients, Unanswered
from tests.simulation.clock import VirtualClock
from tests.simulation.committer import InlineCommitter
from tests.simulation.drain import drain
from tests.simulation.executor import SlowExecutor
from tests.simulation.files import Fault, SimulatedCrash, SimulatedFiles, crash_at, fail_with
from tests.simulation.history import History, Violation
from tests.simulation.twin import Twin
from tests.simulation.workload import Workload

T = TypeVar("T")

_MAX_OPEN_CALLS = 8
_MAX_STEPS_TO_FINISH = 10_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a history is made of. The last two are for planting faults into the store."""

    lives: int = 5  # how often the store is started
    calls: int = 70  # in each life
    memory_share: float = 0.1  # of the histories, without any crash
    compares_state: bool = True  # with that of a machine which never crashed
    committer: Callable[[Log], InlineCommitter] = InlineCommitter
    after_open: Callable[[WalStore], None] | None = None


class Simulation:
    """Everything follows from the seed."""

    def __init__(self, seed: int, plan: Plan, *, verbose: bool = False) -> None:
        self.rng = Random(seed)
        self.plan = plan
        self.clock = VirtualClock()
        self.history = History(self.clock, verbose)
        self.checker = Checker(self.history)
        self.clients = Clients(self.history, self.checker)
        self.workload = Workload(self.rng, self.clients)
        self.twin = Twin()
        self.files = SimulatedFiles(self.rng)
        self.is_durable = self.rng.random() >= plan.memory_share
        self.segment_bytes = self.rng.choice([2048, 4096, 16384])
        self.cache_bytes = self.rng.choice([0, 2000, 100_000])
        self.store: EmbeddedStore
        self.log: Log | None = None
        self.committer: InlineCommitter | None = None
        self.executor = SlowExecutor()
        self.tasks: dict[asyncio.Task[Any], None] = {}  # in the order they were begun

    async def run(self) -> None:
        """Raises `Violation`."""
        asyncio.get_running_loop().set_default_executor(self.executor)
        try:
            await self._run()
        finally:
            await self._drop_calls()

    async def _run(self) -> None:
        await self._start()
        for action in self.workload.begin():
            await self._finish(action)
        for life in range(self.plan.lives):
            if life and self.is_durable:
                await self._restart()
            try:
                await self._live()
            except SimulatedCrash:
                self.history.note("*** the machine stopped")
        if self.is_durable:
            await self._restart()
        await self._end()

    # The life of a process.

    async def _start(self) -> None:
        if not self.is_durable:
            self.store = MemoryStore(clock=self.clock, rng=self.rng)
        else:
            opening = asyncio.ensure_future(self._open())
            self.tasks[opening] = None
            while not opening.done():
                await asyncio.sleep(0)
                if self.committer is not None and self.committer.has_work:
                    self.committer.step()
            del self.tasks[opening]
            self.store = opening.result()
        self.twin.watch(self.store.machine)
        self.clients.use(self.store)

    async def _open(self) -> WalStore:
        store = await WalStore.open(
            self.files,
            clock=self.clock,
            rng=self.rng,
            segment_bytes=self.segment_bytes,
            cache_bytes=self.cache_bytes,
            committer=self._make_committer,
            random_bytes=self.rng.randbytes,
        )
        if self.plan.after_open is not None:
            self.plan.after_open(store)
        return store

    def _make_committer(self, log: Log) -> InlineCommitter:
        self.log = log
        self.committer = self.plan.committer(log)
        return self.committer

    async def _live(self) -> None:
        if self.is_durable:
            self._arm()
        for _ in range(self.plan.calls):
            await self._step()
            if self.clients.has_failed and self.rng.random() < 0.1:
                return

    def _arm(self) -> None:
        """Choose what will go wrong with the disk in this life, if anything."""
        rng, files = self.rng, self.files
        first = rng.randint(1, 60)
        fault: Fault | None = None
        match rng.choice(["stop", "stop", "stop", "write", "sync", "allocate", "full", "none"]):
            case "stop":
                fault = crash_at(files.operations + rng.randint(1, 150))
            case "write" | "sync" | "allocate" as kind:
                fault = fail_with(errno.EIO, kind=kind, from_nth=first)
            case "full":
                fault = fail_with(errno.ENOSPC, kind="allocate", from_nth=first // 4, times=3)
            case _:
                pass
        files.fault = fault

    async def _step(self) -> None:
        """Let something happen: a call, a commit, or the passing of time."""
        rng = self.rng
        if rng.random() < 0.5:
            self.executor.work()
        chance = rng.random()
        if len(self.tasks) >= _MAX_OPEN_CALLS or chance < 0.3:
            self._commit()
        elif chance < 0.4:
            self.clock.advance(rng.choice([0, 0.001, 0.3, 3, 15, 45]))
        action = self.workload.next()
        if action is not None:
            self.tasks[asyncio.ensure_future(action)] = None
        for _ in range(rng.randint(1, 3)):
            await asyncio.sleep(0)
        self._collect()

    def _commit(self) -> None:
        """The disk gets its turn."""
        committer = self.committer
        if committer is None or not committer.has_work:
            return
        count = len(self.twin.events)
        committer.step()
        if committer.failure is None:
            self.twin.committed = count

    def _collect(self) -> None:
        """Look at the calls that ended."""
        for task in [task for task in self.tasks if task.done()]:
            del self.tasks[task]
            if task.cancelled():
                continue
            error = task.exception()
            if isinstance(error, Violation | SimulatedCrash):
                raise error
            if error is not None and not isinstance(error, Unanswered):
                raise Violation("unexpected error", repr(error)) from error

    async def _finish(self, action: Coroutine[Any, Any, T]) -> T:
        """Make one call and wait for its answer, and for all that were open."""
        task = asyncio.ensure_future(action)
        self.tasks[task] = None
        for _ in range(_MAX_STEPS_TO_FINISH):
            await asyncio.sleep(0)
            self._commit()
            self.executor.work()
            self._collect()
            if not self.tasks:
                return task.result()
        raise Violation("answer", "a call was never answered")

    # Death, and what comes after it.

    async def _restart(self) -> None:
        await self._die()
        while True:
            if self.rng.random() < 0.3:
                self.files.fault = crash_at(self.files.operations + self.rng.randint(1, 8))
            try:
                await self._start()
                break
            except SimulatedCrash:
                self.history.note("*** the machine stopped while it started")
                await self._die()
        self.files.fault = None
        self.history.note("*** started")
        self.checker.forget_unmade(self.store.machine)
        self._check_recovered()
        await self._check_stored()

    async def _die(self) -> None:
        """The process ends, in order or not; the calls that are open are never answered."""
        how = self.rng.choice(["power", "power", "kill", "close"])
        has_failed = self.log is not None and self.log.failure is not None
        if how == "close" and not self.files.is_down and not has_failed:
            self.files.fault = None
            await self._finish(self.store.close())
            self.twin.committed = len(self.twin.events)
            self.history.note("*** closed")
        how = "power" if how == "power" else "kill"
        await self._drop_calls()
        self.committer = None
        self.files = self.files.crash() if how == "power" else self.files.kill()
        self.history.note(f"*** {how}")

    async def _drop_calls(self) -> None:
        tasks = list(self.tasks)
        self.tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_recovered(self) -> None:
        if self.plan.compares_state:
            self.twin.check_recovered(self.store.machine, self.clock.now_ns())

    async def _check_stored(self) -> None:
        """What was answered before the start is there after it."""
        self.checker.check_definitions(self.store.machine)
        for queue in list(self.store.machine.queues.values()):
            if queue.source is None:
                messages = await self._read_all(queue)
                self.checker.check_stored(queue, messages)

    async def _read_all(self, queue: Queue) -> list[Message]:
        count = queue.next - queue.first
        return await self._finish(self.store.read(queue.name, queue.first, count)) if count else []

    async def _end(self) -> None:
        """Drain everything, then account for every message."""
        self.files.fault = None
        await self._finish(drain(self.clients, self.clock))
        if self.plan.compares_state:
            self.twin.check_same(self.store.machine, self.clock.now_ns())
        await self._finish(self.store.close())
        if self.is_durable:
            self.twin.committed = len(self.twin.events)
            self.files = self.files.kill()
            self.committer = None
            is_damaged = self.rng.random() < 0.5 and self._damage()
            try:
                await self._start()
            except CorruptLog as exc:
                if not is_damaged:
                    raise Violation("unexpected error", repr(exc)) from exc
                self.history.note(f"*** refused to start: {exc}")
                return
            self._check_recovered()
            if is_damaged:
                await self._check_undamaged()
            else:
                await self._check_stored()
            await self._finish(self.store.close())

    def _damage(self) -> bool:
        """Flip a bit of what was stored. After an orderly end all of it was promised."""
        files, rng = self.files, self.rng
        name = rng.choice(files.names())
        written = len(files.read(name).rstrip(b"\0"))
        if not written:
            return False
        offset, bit = rng.randrange(written), rng.randrange(8)
        files.flip(name, offset, bit)
        self.history.note(f"*** bit {bit} at offset {offset} of {name} is flipped")
        return True

    async def _check_undamaged(self) -> None:
        """It did start, so the damage is of no matter, or is found when the message is read."""
        for queue in list(self.store.machine.queues.values()):
            for index in range(queue.first, queue.next):
                try:
                    messages = await self._finish(self.store.read(queue.name, index, 1))
                except Violation as exc:
                    if not isinstance(exc.__cause__, CorruptLog):
                        raise
                    self.history.note(f"*** refused to read: {exc.__cause__}")
                else:
                    for message in messages:
                        self.checker.identify(message)

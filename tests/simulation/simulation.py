"""One history: clients, a store, a disk that fails, and a checker that believes only answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from penstock.core.message import Message
from penstock.core.queue import Queue
from penstock.errors import CorruptLog, StorageError
from penstock.storage import base
from penstock.storage.embedded import EmbeddedStore
from penstock.storage.memory import MemoryStore
from penstock.storage.wal.log import Log, SyncMode
from penstock.storage.wal.store import WalStore
from tests.simulation import faults
from tests.simulation.checker import Checker
from tests.simulation.clients import Clients
from tests.simulation.clock import VirtualClock
from tests.simulation.committer import InlineCommitter
from tests.simulation.drain import drain
from tests.simulation.files import SimulatedCrash
from tests.simulation.history import History, Violation
from tests.simulation.host import Host
from tests.simulation.told import check_told
from tests.simulation.twin import Twin
from tests.simulation.workload import Workload

T = TypeVar("T")

_MAX_OPEN_CALLS = 8
_MAX_STARTS = 50


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
        self.host = Host(self.rng, self.clock, plan.committer)
        self.is_durable = self.rng.random() >= plan.memory_share
        # Only the first promises anything for a power loss.
        self.sync = self.rng.choice([*[SyncMode.ALWAYS] * 8, SyncMode.INTERVAL, SyncMode.NEVER])
        self.store: EmbeddedStore

    async def run(self) -> None:
        """Raises `Violation`."""
        asyncio.get_running_loop().set_default_executor(self.host.executor)
        try:
            await self._run()
        finally:
            await self.host.drop_calls()

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
        if self.is_durable and self.sync is not SyncMode.ALWAYS and self.rng.random() < 0.5:
            await self._lose_the_tail()
            return
        if self.is_durable:
            await self._restart()
        await self._end()

    # The life of a process.

    async def _start(self) -> None:
        if not self.is_durable:
            self.store = MemoryStore(clock=self.clock, rng=self.rng)
        else:
            store = await self.host.start(self.sync)
            if self.plan.after_open is not None:
                self.plan.after_open(store)
            self.store = store
        self.twin.watch(self.store.machine)
        self.clients.use(self.store)

    async def _live(self) -> None:
        if self.is_durable:
            self.host.files.fault = faults.in_a_life(self.rng, self.host.files)
        for _ in range(self.plan.calls):
            await self._step()
            if self.clients.has_failed and self.rng.random() < 0.1:
                return

    async def _step(self) -> None:
        """Let something happen: a call, a commit, a slow read, or the passing of time."""
        rng = self.rng
        if rng.random() < 0.5:
            self.host.executor.work()
        chance = rng.random()
        if self.host.open_calls >= _MAX_OPEN_CALLS or chance < 0.3:
            self._commit()
        elif chance < 0.4:
            self.clock.advance(rng.choice([0, 0.001, 0.3, 3, 15, 45]))
        elif chance < 0.405:
            self.clock.advance(-20)  # somebody set the clock
        action = self.workload.next()
        if action is not None:
            self.host.begin(action)
        for _ in range(rng.randint(1, 3)):
            await asyncio.sleep(0)
        self.host.collect()

    def _commit(self) -> None:
        count = len(self.twin.events)
        if self.host.commit():
            self.twin.committed = count

    async def _finish(self, call: Coroutine[Any, Any, T]) -> T:
        return await self.host.finish(call, self._commit)

    # Death, and what comes after it.

    async def _restart(self) -> None:
        await self._die()
        for _ in range(_MAX_STARTS):
            fault = self.host.files.fault = faults.at_a_start(self.rng, self.host.files)
            try:
                await self._start()
                break
            except SimulatedCrash:
                self.history.note("*** the machine stopped while it started")
            except StorageError as exc:
                if fault is None or isinstance(exc, CorruptLog):
                    raise
                self.history.note(f"*** refused to start: {exc}")
            await self._stop()
        else:
            raise Violation("start", f"it did not start in {_MAX_STARTS} attempts")
        self.host.files.fault = None
        self.history.note("*** started")
        self.checker.forget_unmade(self.store.machine)
        self._check_recovered()
        await self._check_stored()

    async def _die(self) -> None:
        """The process ends, in order or not."""
        files = self.host.files
        files.capacity_bytes = None
        if self.rng.random() < 0.25 and not files.is_down and not self.host.has_failed:
            files.fault = faults.at_a_close(self.rng, files)
            try:
                await self._finish(self.store.close())
            except SimulatedCrash:
                self.history.note("*** the machine stopped while it closed the store")
            else:
                self.twin.committed = len(self.twin.events)
                self.history.note("*** closed")
        await self._stop()

    async def _stop(self) -> None:
        power = self.sync is SyncMode.ALWAYS and self.rng.random() < 0.7
        self.history.note("*** the power is lost" if power else "*** the process is killed")
        await self.host.stop(power=power)

    def _check_recovered(self) -> None:
        if self.plan.compares_state:
            self.twin.check_recovered(self.store.machine, self.clock.latest_ns)

    async def _check_stored(self) -> None:
        """What was answered before the start is there after it."""
        self.checker.check_definitions(self.store.machine)
        machine = self.store.machine
        for queue in list(machine.queues.values()):
            if queue.events_of is not None:
                if queue.first == 0:
                    untold = machine.untold.get(queue.events_of.id, [])
                    check_told(queue.events_of, await self._read_all(queue), untold)
            elif queue.source is None:
                self.checker.check_stored(queue, await self._read_all(queue))

    async def _read_all(self, queue: Queue) -> list[Message]:
        count = queue.next - queue.first
        if not count:
            return []
        return await self._finish(
            self.store.read(queue.name, base.Span(start=queue.first, limit=count))
        )

    # The end.

    async def _end(self) -> None:
        """Drain everything, account for every message, and look once more after a restart."""
        await self._finish(drain(self.clients, self.clock))
        if self.plan.compares_state:
            self.twin.check_same(self.store.machine, self.clock.latest_ns)
        await self._finish(self.store.close())
        if not self.is_durable:
            return
        self.twin.committed = len(self.twin.events)
        await self.host.stop(power=self.sync is SyncMode.ALWAYS)
        is_damaged = self.rng.random() < 0.5 and self._damage()
        try:
            await self._start()
        except CorruptLog as exc:
            if not is_damaged:
                raise
            self.history.note(f"*** refused to start: {exc}")
            return
        self._check_recovered()
        litter = [name for name in self.host.files.names() if name.endswith(".tmp")]
        if litter:
            raise Violation("litter", f"these files are left behind for ever: {litter}")
        if is_damaged:
            await self._check_undamaged()
        else:
            await self._check_stored()
        await self._finish(self.store.close())

    async def _lose_the_tail(self) -> None:
        """Where a commit need not be durable a power loss takes some of the last, and no others."""
        self.history.note("*** the power is lost")
        await self.host.stop(power=True)
        self.host.files.fault = None
        self.host.files.capacity_bytes = None
        await self._start()
        if self.plan.compares_state:
            self.twin.check_shortened(self.store.machine, self.clock.latest_ns)
        for queue in list(self.store.machine.queues.values()):
            for message in await self._read_all(queue):
                if queue.events_of is None:
                    self.checker.identify(message, is_known=False)
        await self._finish(self.store.close())

    def _damage(self) -> bool:
        """Flip a bit of what was stored. After an orderly end all of it was promised."""
        files, rng = self.host.files, self.rng
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
                    messages = await self._finish(
                        self.store.read(queue.name, base.Span(start=index, limit=1))
                    )
                except Violation as exc:
                    if not isinstance(exc.__cause__, CorruptLog):
                        raise
                    self.history.note(f"*** refused to read: {exc.__cause__}")
                else:
                    for message in messages:
                        if queue.events_of is None:
                            self.checker.identify(message)

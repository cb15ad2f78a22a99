"""The memory backend: just the machine. Fast, and gone with the process."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.clock import Clock, SystemClock
from penstock.core.events import DeadLettered, Event, Published, QueueDeleted, QueuePurged, Trimmed
from penstock.core.machine import Machine, Place
from penstock.core.timeline import Places
from penstock.storage.answers import Done
from penstock.storage.base import Durability
from penstock.storage.block import Block, block_of
from penstock.storage.embedded import EmbeddedStore
from penstock.storage.end_of_turn import EndOfTurn

__all__ = ["MemoryStore"]


class _MemoryJournal:
    """Keeps the events that carry messages for as long as a queue refers to them."""

    durability: Durability = "memory"
    moves = 0  # events never move

    def __init__(self) -> None:
        self._events: dict[int, Event] = {}
        self._last = 0
        self._is_stale = False
        self._end_of_turn = EndOfTurn()

    def append(self, event: Event) -> Place:
        if isinstance(event, Published | DeadLettered):
            self._last += 1
            self._events[self._last] = event
            return Place(self._last, event.size if isinstance(event, Published) else 0)
        if isinstance(event, Trimmed | QueuePurged | QueueDeleted):
            self._is_stale = True
        return Place(0, 0)

    def sweep(self, machine: Machine) -> None:
        """Drop the events that no queue refers to any more."""
        if not self._is_stale:
            return
        self._is_stale = False
        live: dict[int, Event] = {}
        for queue in machine.queues.values():
            batches = queue.timeline.batches(queue.first, queue.next)
            for batch in [*batches, *queue.stragglers.values()]:
                live[batch.locator] = self._events[batch.locator]
        self._events = live

    @property
    def problem(self) -> None:
        return None

    def has_room(self, size: int) -> bool:
        return True

    def has_settle_room(self, size: int) -> bool:
        return True

    async def make_room(self, size: int) -> None:
        return

    def submit(self) -> None:
        return None

    def call_when_committed(self, done: Done) -> None:
        done(None)

    def before_commit(self, callback: Callable[[], None], size: int) -> None:
        self._end_of_turn.ask(callback)

    def load_nowait(self, place: Place) -> Event | None:
        return self._events[place.locator]

    async def load(self, place: Place) -> Event:
        return self._events[place.locator]

    async def load_blocks(self, queue_id: int, places: Places) -> list[Block]:
        events = (self._events[locator] for locator in places.locators)
        return [block_of(event) for event in events if isinstance(event, Published)]

    async def close(self) -> None:
        self._events.clear()


class MemoryStore(EmbeddedStore):
    """See `EmbeddedStore`. Nothing survives the process."""

    def __init__(self, *, clock: Clock | None = None, rng: Random | None = None) -> None:
        self._events = _MemoryJournal()
        super().__init__(
            machine=Machine(journal=self._events, rng=rng or Random()),
            journal=self._events,
            clock=clock or SystemClock(),
        )

    async def tick(self) -> None:
        await super().tick()
        self._events.sweep(self.machine)

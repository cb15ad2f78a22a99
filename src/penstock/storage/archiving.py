"""What a store offers so that an archive can keep a record of it and rebuild it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from penstock.core.config import QueueConfig
from penstock.core.message import Message
from penstock.core.runs import Runs
from penstock.storage.base import Store
from penstock.storage.shared import Shared

__all__ = [
    "HotShared",
    "HotStore",
    "QueueState",
    "ReaderState",
    "Recovered",
    "Tries",
    "without_new_letters",
]


class Tries(msgspec.Struct, frozen=True, array_like=True):
    """The attempts at one unsettled message. `late`: its lease ran out, but an ack still counts."""

    index: int
    deliveries: int
    epoch: int
    late: bool
    reason: bytes


class ReaderState(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription's progress. Runs are flat bounds; only the store interprets `fields`."""

    name: str
    fields: list[bytes]
    settled: list[int]
    dead: list[int]
    opened: list[int]
    tries: list[Tries]
    waiting: list[tuple[int, int]]


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a queue but its messages, at one point in time.

    `at` orders the states of a queue: a later one has a larger value. `number` grows with every
    change of its definitions. `letters` is the state of its
    dead-letter queue, if it has one. `is_told`: its messages are the events of another queue, which
    the store publishes itself.
    """

    name: str
    id: int
    salt: int
    at: int
    first: int
    next: int
    config: QueueConfig
    fields: list[bytes]
    refers: list[bytes]
    pins: list[bytes]
    readers: list[ReaderState]
    letters: QueueState | None = None
    is_told: bool = False
    number: int = 0

    def is_behind(self, earlier: QueueState) -> bool:
        """Whether the store has lost something since an earlier state, and has older data now."""
        if self.id != earlier.id:
            return False
        return self.number < earlier.number or self.next < earlier.next

    def reader(self, name: str) -> ReaderState | None:
        return next((reader for reader in self.readers if reader.name == name), None)


def without_new_letters(state: QueueState, first: int) -> QueueState:
    """A state whose dead letters from an index on have no record: their messages are unsettled."""
    letters = state.letters
    if letters is None or letters.next <= first:
        return state
    kept: list[bytes] = []
    failed: dict[int, list[int]] = {}  # by the id of the subscription
    pins = {int(index): int(count) for index, count in _pairs(state.pins)}
    for index, origin in _pairs(letters.refers):
        if int(index) < first:
            kept += (index, origin)
            continue
        reader, _, message = origin.partition(b":")
        failed.setdefault(int(reader), []).append(int(message))
        pins[int(message)] -= 1
    readers = []
    for one in state.readers:
        indexes = failed.get(int(dict(_pairs(one.fields))[b"id"]), [])
        settled, dead = (_minus(bounds, indexes) for bounds in (one.settled, one.dead))
        readers.append(replace(one, settled=settled, dead=dead))
    own = [replace(one, settled=_below(one.settled, first)) for one in letters.readers]
    return replace(
        state,
        pins=[b"%d" % part for pin in pins.items() if pin[1] for part in pin],
        readers=readers,
        letters=replace(letters, next=first, refers=kept, readers=own),
    )


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _minus(bounds: Sequence[int], indexes: Sequence[int]) -> list[int]:
    runs = Runs(zip(bounds[::2], bounds[1::2], strict=True))
    for index in indexes:
        runs.discard(index, index + 1)
    return [bound for run in runs for bound in run]


def _below(bounds: Sequence[int], stop: int) -> list[int]:
    runs = Runs(zip(bounds[::2], bounds[1::2], strict=True))
    return [bound for run in runs.within(0, stop) for bound in run]


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of each queue were restored, and how many were added to the archive."""

    restored: dict[str, int]
    archived: dict[str, int]


class HotShared(Shared, Protocol):
    """Like `Shared`, for documents that may be in the archive."""

    async def announce(self, name: str) -> None:
        """Tell those who follow a document that it has changed."""
        ...


class HotStore(Store, Protocol):
    """A store whose whole state can be read and restored."""

    @property
    def shared(self) -> HotShared: ...

    async def known_names(self) -> list[str]:
        """Like `names`, but only those that are known, if the list cannot be reached."""
        ...

    async def version(self, queue: str) -> str | None:
        """Differs each time the queue is rebuilt; None if it does not exist."""
        ...

    async def rebuilt(self, queue: str) -> str | None:
        """Differs each time the queue is restored without having been dropped for that.

        Empty if it never was, None if the queue does not exist.
        """
        ...

    async def snapshot(self, queue: str, known: QueueState | None = None) -> QueueState | None:
        """None if there is no such queue.

        ``known`` is an earlier snapshot. Only the subscriptions that have changed since then are
        read; the others are the same objects.
        """
        ...

    async def restore(
        self,
        state: QueueState,
        messages: AsyncIterator[Sequence[Message]],
        had_from: int | None = None,
    ) -> bool:
        """Rebuild a queue that does not exist. Nobody can use it until it is complete.

        Messages come in index order, and may be newer than the state. What is settled or was lost
        leaves a gap. The queue's dead letters take another call. Returns False, and touches
        nothing, if the queue exists. Raises `StoreUnavailable`, and touches nothing further, once
        the queue is lost again or somebody else rebuilds it.

        ``had_from`` is for a queue that was dropped just before: the index of its first message. A
        message from there on that it did not have is new: the progress at its index is another's.
        """
        ...

    async def drop(self, queue: str) -> QueueState | None:
        """Delete just this queue, whatever its kind, so that it can be restored.

        Returns the state that it had: whatever was answered before is in it. None if there is no
        such queue.
        """
        ...

    async def tick(self) -> None:
        """Do what is due in every queue."""
        ...

    async def is_complete(self, archive: str) -> bool:
        """Whether `set_complete` was called for this archive, because its record is complete."""
        ...

    async def set_complete(self, archive: str) -> None: ...

    async def lock(self, name: str, seconds: float) -> bool:
        """Take or renew a lock for work that one server must do alone. False if another has it."""
        ...

    async def renew(self, name: str, seconds: float) -> bool:
        """Renew a lock. False if it was lost, even if nobody has it: others may have had it."""
        ...

    async def unlock(self, name: str) -> None: ...

"""What a store must offer so that an archive can keep a record of it and rebuild it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from penstock.core.config import QueueConfig
from penstock.core.message import Message
from penstock.storage.base import Store
from penstock.storage.shared import Shared

__all__ = ["HotShared", "HotStore", "QueueState", "ReaderState", "Recovered", "Tries"]


class Tries(msgspec.Struct, frozen=True, array_like=True):
    """Of one unsettled message. `late` if its ack counts although it is in flight no more."""

    index: int
    deliveries: int
    epoch: int
    late: bool
    reason: bytes


class ReaderState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a subscription is. Runs are flat bounds; `fields` are the store's own affair."""

    name: str
    fields: list[bytes]
    settled: list[int]
    dead: list[int]
    opened: list[int]
    tries: list[Tries]
    waiting: list[tuple[int, int]]


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """All of a queue but its messages, as of one moment.

    `at` orders the states of a queue: the later one has the larger. `letters` is the same of its
    dead letters, if it has any. `is_told` if its messages are the events of another queue, which
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

    def reader(self, name: str) -> ReaderState | None:
        return next((reader for reader in self.readers if reader.name == name), None)


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages each queue got back, and how many of each were added to the record."""

    restored: dict[str, int]
    archived: dict[str, int]


class HotShared(Shared, Protocol):
    """What servers share, where the documents may be in the archive."""

    async def announce(self, name: str) -> None:
        """Tell who follows a document that it was changed."""
        ...


class HotStore(Store, Protocol):
    """A store that can tell and take back all that it knows."""

    @property
    def shared(self) -> HotShared: ...

    async def names(self) -> list[str]:
        """Of all queues but those of dead letters."""
        ...

    async def known_names(self) -> list[str]:
        """The same, as far as they are known while the list of them is away."""
        ...

    async def version(self, queue: str) -> str | None:
        """Another one each time that the queue was rebuilt; None while it is not there."""
        ...

    async def snapshot(self, queue: str) -> QueueState | None:
        """None if there is no such queue."""
        ...

    async def restore(self, state: QueueState, messages: AsyncIterator[Sequence[Message]]) -> bool:
        """Rebuild a queue that is not there; nobody can use it before it is whole.

        Messages come in the order of their indexes, and may be newer than the state. What is
        settled or was lost leaves a gap. The dead letters of the queue are another call. False,
        and nothing is touched, if the queue is there.
        """
        ...

    async def drop(self, queue: str) -> None:
        """Delete it alone, whatever it is, so that it can be restored."""
        ...

    async def tick(self) -> None:
        """Do what is due in every queue."""
        ...

    async def is_complete(self, archive: str) -> bool:
        """Whether this archive's record was all there when `set_complete` was called."""
        ...

    async def set_complete(self, archive: str) -> None: ...

    async def lock(self, name: str, seconds: float) -> bool:
        """Whether this server may do what one of them must do alone; also to go on doing it."""
        ...

    async def unlock(self, name: str) -> None: ...

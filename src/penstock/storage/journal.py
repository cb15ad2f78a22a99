"""What an embedded store needs of its journal. The machine itself needs only `append`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.core.machine import Journal
from penstock.storage.answers import Done
from penstock.storage.base import Durability
from penstock.storage.reader import MessageSource

__all__ = ["MessageJournal"]


class MessageJournal(Journal, MessageSource, Protocol):
    """Stores events, and loads those that carry messages."""

    @property
    def durability(self) -> Durability: ...

    @property
    def problem(self) -> str | None:
        """Why nothing can be appended any more, if that is so."""
        ...

    def has_room(self, size: int) -> bool:
        """Whether there is space for a publish of this many bytes."""
        ...

    def has_settle_room(self, size: int) -> bool:
        """False if there is known to be no space for other events of this many bytes."""
        ...

    async def make_room(self, size: int) -> None:
        """Returns once there is space. Raises `DiskFull`."""
        ...

    def submit(self) -> asyncio.Future[None] | None:
        """A future for all that was appended to reach its durability; None if it already has."""
        ...

    def call_when_committed(self, done: Done) -> None:
        """Call ``done`` once all that was appended has reached its durability; at once if it has.

        Raises what `submit` raises.
        """
        ...

    def before_commit(self, callback: Callable[[], None], size: int) -> None:
        """Call ``callback`` once before the next commit. It will append about ``size`` bytes."""
        ...

    async def close(self) -> None: ...

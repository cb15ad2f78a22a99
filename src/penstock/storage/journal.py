"""What a store over the machine asks of its journal. The machine itself asks only for `append`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.core.machine import Journal
from penstock.storage.base import Durability
from penstock.storage.reader import MessageSource

__all__ = ["MessageJournal"]


class MessageJournal(Journal, MessageSource, Protocol):
    """Keeps events, and gives back those that carry messages."""

    @property
    def durability(self) -> Durability: ...

    @property
    def problem(self) -> str | None:
        """Why nothing can be appended any more, if so."""
        ...

    def has_room(self, size: int) -> bool:
        """Whether there is space for a publish of this many bytes."""
        ...

    def has_settle_room(self, size: int) -> bool:
        """False when it is known that there is no space for other events of this many bytes."""
        ...

    async def make_room(self, size: int) -> None:
        """Returns when there is; raises `DiskFull`."""
        ...

    def submit(self) -> asyncio.Future[None] | None:
        """Done when all that was appended has the journal's durability; None if it has already."""
        ...

    def before_commit(self, callback: Callable[[], None], size: int) -> None:
        """Call it, once, when all that comes together is there: it will append ``size`` more."""
        ...

    async def close(self) -> None: ...

"""What the servers of one store share besides messages: small documents, and rate limits.

A document is read and replaced as a whole. Its version is new with every change and never reused,
so of two servers that change it at once, one notices, reads it again and retries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Document", "Limit", "Shared"]


class Document(NamedTuple):
    """If it does not exist, both its content and its version are empty."""

    content: bytes
    version: str


class Limit(NamedTuple):
    """How many requests of a name are allowed per second."""

    name: str
    per_second: int


class Shared(Protocol):
    """Errors are those of `penstock.errors`, such as `StoreUnavailable`."""

    def place(self, name: str) -> str:
        """Where a document is stored, to be shown to people."""
        ...

    async def get(self, name: str, known: str | None = None) -> Document | None:
        """Read a document. None if its version is ``known``."""
        ...

    async def put(self, name: str, content: bytes, version: str) -> str | None:
        """Replace a document that has this version. Returns the new one, or None if it has another.

        When this returns, the change has the store's durability, and others are told.
        """
        ...

    def follow(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        """Call ``look`` when another server may have changed it, until the store is closed.

        Notifications can be lost with a connection, so it is also called every `LOOK_SECONDS`.
        """
        ...

    async def over_limit(self, limits: Sequence[Limit]) -> Limit | None:
        """Count a request against each limit for this second. Returns the first that it exceeds."""
        ...


LOOK_SECONDS = 5.0
"""How stale a server's copy of a document can be while it reaches the store."""

"""What the servers of one store share besides messages: small documents, and how often they ask.

A document is read and replaced as a whole. Each has a version, which is new with every change and
never comes again; so of two servers that change one at once, one finds out, looks, and tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Document", "Limit", "Shared"]


class Document(NamedTuple):
    """One that is not there is empty, and so is its version."""

    content: bytes
    version: str


class Limit(NamedTuple):
    """How many requests of a name a second takes."""

    name: str
    per_second: int


class Shared(Protocol):
    """Errors are those of `penstock.errors`, such as `StoreUnavailable`."""

    def place(self, name: str) -> str:
        """Where a document is, for people."""
        ...

    async def get(self, name: str, known: str | None = None) -> Document | None:
        """None if its version is the one that is known."""
        ...

    async def put(self, name: str, content: bytes, version: str) -> str | None:
        """Replace what has this version. The new version; None, and nothing is done, if it has not.

        It has the store's durability when this returns, and others are told.
        """
        ...

    def follow(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        """Call ``look`` when another server may have changed it, until the store is closed.

        News may get lost with a connection, so it is also called every `LOOK_SECONDS`.
        """
        ...

    async def over_limit(self, limits: Sequence[Limit]) -> Limit | None:
        """Count a request in this second of each limit, up to the first that it is too many for."""
        ...


LOOK_SECONDS = 5.0
"""How old at most is what a server knows of a document, while it reaches the store."""

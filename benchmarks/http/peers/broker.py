"""What every contender can do. Each uses its client as the client's own documentation does."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from benchmarks.harness.sample import Sample

__all__ = ["Broker", "Peer"]


class Peer(Protocol):
    name: ClassVar[str]
    needs: ClassVar[str]
    """What has to be installed for it, and from where."""

    @classmethod
    def is_installed(cls) -> bool: ...

    @classmethod
    def running(cls, directory: Path) -> AbstractContextManager[Any]:
        """Its server, with all its data in an empty directory."""
        ...


class Broker(Peer, Protocol):
    """A message broker behind its Python client."""

    durability: ClassVar[str]
    """What is left of an answered publish after a power loss."""

    @classmethod
    def connected(cls, server: Any) -> AbstractAsyncContextManager[Self]:
        """A client of a running server, with an empty queue."""
        ...

    async def publish(self, body: bytes) -> None:
        """One message. It returns when the broker has confirmed it."""
        ...

    async def publish_many(self, bodies: list[bytes]) -> None:
        """To fill the queue; nobody takes the time."""
        ...

    async def consume(self, seconds: float, limit: int) -> Sample:
        """Have a handler called for each message, and ack it, for a time or up to a number.

        The time ends with the last handler, not with the consumer, which may take its leave.
        """
        ...

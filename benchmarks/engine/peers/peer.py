"""What every peer can do. An adapter uses the best that its library offers for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, Self


class Peer(Protocol):
    """An embedded queue, open in a directory of its own. Calls block; one thread uses it.

    A single thread is each peer's best: SQLite has one writer at a time.
    """

    name: ClassVar[str]
    """As on the package index."""
    durability: ClassVar[str]
    """What is left of an answered put after a power loss."""

    @classmethod
    def open(cls, directory: Path) -> Self:
        """A new queue in an empty directory. Raises ImportError if it is not installed."""
        ...

    def put(self, body: bytes) -> None: ...

    def put_many(self, bodies: Sequence[bytes]) -> None:
        """All of them, in one transaction where the library offers one."""
        ...

    def receive_and_ack(self, limit: int) -> int:
        """Take up to `limit` messages for good, in as few transactions as the library offers.

        Returns how many there were.
        """
        ...

    def close(self) -> None: ...

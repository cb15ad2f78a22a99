"""A value that the servers of one store share, and that each of them has in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from penstock.errors import StorageError
from penstock.storage.shared import Shared

__all__ = ["SharedValue"]

T = TypeVar("T")

logger = structlog.get_logger("penstock.http")


class SharedValue(Generic[T]):
    """Reading it costs nothing. A change is stored before it counts, and is all or nothing.

    A server never goes back to an older value, because it looks and changes one step at a time. If
    the store has lost the value, any server that still has it puts it back.
    """

    def __init__(
        self,
        shared: Shared,
        name: str,
        empty: T,
        *,
        decode: Callable[[bytes, str], T],
        encode: Callable[[T], bytes],
        taken: Callable[[T], None],
    ) -> None:
        """``decode`` gets the content and its place; ``taken`` is called with every new value."""
        self._shared = shared
        self._name = name
        self._decode = decode
        self._encode = encode
        self._taken = taken
        self._version = ""
        self._changing = asyncio.Lock()
        self._looks = 0
        self.value = empty

    async def open(self, first: Callable[[T], T]) -> None:
        """Apply ``first`` to it, and from then on follow what other servers change.

        Raises what ``first``, ``decode`` and the store raise.
        """
        await self.change(first)
        # A change that changes nothing puts the value back if the store has lost it.
        self._shared.follow(self._name, lambda: self.change(lambda value: value))

    async def change(self, change: Callable[[T], T]) -> None:
        """Replace the value by ``change`` of it; once more if another server was faster.

        Raises what ``change`` and the store raise.
        """
        async with self._changing:
            while True:
                await self._look()
                value = change(self.value)
                if self._version and value == self.value:
                    return
                content = self._encode(value)
                version = await self._shared.put(self._name, content, self._version)
                if version is not None:
                    self._take(value, version)
                    return

    async def refresh(self) -> None:
        """Learn what others have changed until now. While the store is away, nothing is learned."""
        looks = self._looks
        async with self._changing:
            if self._looks == looks:  # otherwise somebody has looked since
                try:
                    await self._look()
                except StorageError as exc:
                    logger.warning("it may have changed meanwhile", what=self._name, why=str(exc))

    async def _look(self) -> None:
        self._looks += 1
        document = await self._shared.get(self._name, self._version)
        if document is None:
            return
        if not document.version:
            self._version = ""
            return
        self._take(self._decode(document.content, self._shared.place(self._name)), document.version)

    def _take(self, value: T, version: str) -> None:
        self.value, self._version = value, version
        self._taken(value)

"""A value that the servers of one store share, and that each of them knows by heart."""

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

    A server never goes back to an older value: it looks and changes one after the other. If the
    store has lost the value, whoever knows it puts it back.
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
        """``decode`` gets the content and where it is; ``taken`` is told of every new value."""
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
        """Change it by ``first``, and follow what others make of it.

        Raises what ``first``, ``decode`` and the store raise.
        """
        await self.change(first)
        # Where it is lost, it is put back by changing nothing.
        self._shared.follow(self._name, lambda: self.change(lambda value: value))

    async def change(self, change: Callable[[T], T]) -> None:
        """``change`` is given what is so now, again if another server was faster, and may raise.

        Raises what the store raises.
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
        """Know what others had changed when this was called; while the store is away, what was."""
        looks = self._looks
        async with self._changing:
            if self._looks == looks:  # else somebody has looked since
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

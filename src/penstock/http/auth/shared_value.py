"""A value that the servers of one store share, and that each of them has in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import structlog

from penstock.errors import PenstockError, StorageError, StoreUnavailable
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
        self._first: Callable[[T], T] | None = None
        self.value = empty
        self.problem: str | None = None
        """Why it is not known yet, if the store could not be asked for it at the start."""

    async def open(self, first: Callable[[T], T]) -> None:
        """Apply ``first`` to it, and from then on follow what other servers change.

        If the part of the store that has it is away, so is the value until that is back: see
        `problem`. Raises what ``first``, ``decode`` and the store raise otherwise.
        """
        self._first = first
        with suppress(StoreUnavailable):
            await self._begin()
        # Where it is lost, it is put back by changing nothing.
        self._shared.follow(self._name, lambda: self.change(lambda value: value))

    async def change(self, change: Callable[[T], T]) -> None:
        """Replace the value by ``change`` of it; once more if another server was faster.

        Raises what ``change`` and the store raise.
        """
        await self._begin()
        async with self._changing:
            await self._change(change)

    async def _begin(self) -> None:
        """Once. Raises what `open` says."""
        if self._first is None:
            return
        async with self._changing:
            if self._first is not None:  # else somebody else has, meanwhile
                try:
                    await self._change(self._first)
                except PenstockError as exc:
                    self.problem = str(exc)
                    raise
                self._first = self.problem = None

    async def _change(self, change: Callable[[T], T]) -> None:
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
        """Know what others had changed when this was called; while the store is away, what was.

        Raises `StoreUnavailable` if nothing was known before.
        """
        try:
            await self._begin()
        except PenstockError as exc:
            raise StoreUnavailable(f"{self._name} is not known yet: {exc}") from exc
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

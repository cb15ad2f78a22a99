"""Work to be done once, at the end of a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["EndOfTurn"]


class EndOfTurn:
    """Calls each callback once at the end of the turn, however often it was asked for.

    It is forgotten before it is called, so it may ask for the next turn.
    """

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: set[Callable[[], None]] = set()

    def ask(self, callback: Callable[[], None]) -> None:
        if callback not in self._callbacks:
            self._callbacks.add(callback)
            asyncio.get_running_loop().call_soon(self._call, callback)

    def _call(self, callback: Callable[[], None]) -> None:
        self._callbacks.discard(callback)
        callback()

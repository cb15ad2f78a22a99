"""Long work on the event loop, in pieces: others have their turn in between."""

from __future__ import annotations

import asyncio

__all__ = ["Turns"]

# Subscriptions that are looked at in one turn of the loop: about a millisecond.
_WORK = 100


class Turns:
    """Counts what was done in this turn of the event loop.

    In between, anything may change: whoever uses it looks up again what it goes on with.
    """

    def __init__(self) -> None:
        self._done = 0

    async def after(self, work: int) -> None:
        """``work`` is how many subscriptions were looked at, or what takes as long."""
        self._done += work
        if self._done >= _WORK:
            self._done = 0
            await asyncio.sleep(0)

"""The regular work of a store: what becomes due without any call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.errors import StorageError

__all__ = ["Ticker"]

logger = logging.getLogger(__name__)


class Ticker:
    """Ticks on after a failure, which is logged once for as long as it stays the same."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, tick: Callable[[], Awaitable[None]], every_seconds: float) -> None:
        """The first tick is after ``every_seconds``."""
        self._task = asyncio.get_running_loop().create_task(_tick_forever(tick, every_seconds))

    async def stop(self) -> None:
        """Afterwards no tick is under way. May be called without `start`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def _tick_forever(tick: Callable[[], Awaitable[None]], every_seconds: float) -> None:
    known = ""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            await tick()
        except StorageError as exc:
            # Callers get the error from their own calls; here the next tick tries again.
            if str(exc) != known:
                logger.error("the regular work of the store failed: %s", exc)
            known = str(exc)
        except Exception:
            logger.exception("the regular work of the store failed")
        else:
            if known:
                logger.info("the regular work of the store goes on")
            known = ""

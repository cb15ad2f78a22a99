"""The regular work of a store: what time brings about without anybody asking."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.errors import StorageError

__all__ = ["Ticker"]

logger = logging.getLogger(__name__)


class Ticker:
    """A failure is logged, once as long as it stays the same; the work goes on at the next tick."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, tick: Callable[[], Awaitable[None]], every_seconds: float) -> None:
        """The first one is after ``every_seconds``."""
        self._task = asyncio.get_running_loop().create_task(_tick_forever(tick, every_seconds))

    async def stop(self) -> None:
        """None is under way any more. Also if there never was any."""
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
            # Whoever uses the store is told by its own call; time goes on for the others.
            if str(exc) != known:
                logger.error("the regular work of the store failed: %s", exc)
            known = str(exc)
        except Exception:
            logger.exception("the regular work of the store failed")
        else:
            if known:
                logger.info("the regular work of the store goes on")
            known = ""

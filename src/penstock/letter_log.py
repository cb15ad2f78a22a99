"""Dead letters in the log: a line each, but never a flood of them."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from penstock.core.message import DeadLetter

__all__ = ["LetterLog"]

MOST_LINES = 10
"""Per subscription and second."""
_SECONDS = 1.0

logger = structlog.get_logger("penstock")

Of = tuple[str, str | None]
"""A queue, and the subscription if it is known."""


class LetterLog:
    """See `LetterWatch`. Logs the first letters of a subscription in a second, and counts the rest.

    Lines are written in the next turn of the loop, so that logging cannot fail the command under
    way. They have neither body nor attributes.
    """

    def __init__(self, most_lines: int = MOST_LINES) -> None:
        self._most_lines = most_lines
        # How many letters there were in this second.
        self._counts: dict[Of, int] = {}
        self._ends: dict[Of, asyncio.TimerHandle] = {}

    def buried(self, id: str, letter: DeadLetter) -> None:
        count = self._add((letter.queue, letter.subscription), 1)
        if count <= self._most_lines:
            asyncio.get_running_loop().call_soon(self._write, id, letter)

    def more(self, queue: str, count: int) -> None:
        # Counted as if they came after those that were logged.
        of = (queue, None)
        self._add(of, count if of in self._counts else self._most_lines + count)

    def close(self) -> None:
        """Log how many were left out so far."""
        for of, end in list(self._ends.items()):
            end.cancel()
            self._end(of)

    def _add(self, of: Of, count: int) -> int:
        if of not in self._counts:
            self._counts[of] = 0
            self._ends[of] = asyncio.get_running_loop().call_later(_SECONDS, self._end, of)
        self._counts[of] += count
        return self._counts[of]

    def _end(self, of: Of) -> None:
        del self._ends[of]
        left_out = self._counts.pop(of) - self._most_lines
        if left_out > 0:
            queue, subscription = of
            known: dict[str, Any] = {} if subscription is None else {"subscription": subscription}
            logger.warning(
                "more messages became dead letters", queue=queue, **known, count=left_out
            )

    def _write(self, id: str, letter: DeadLetter) -> None:
        # A consumer wrote it, so it may hold control sequences for a terminal.
        reason = letter.reason if letter.reason.isprintable() else ascii(letter.reason)
        logger.warning(
            "a message became a dead letter",
            queue=letter.queue,
            subscription=letter.subscription,
            id=id,
            index=letter.index,
            deliveries=letter.deliveries,
            reason=reason,
        )

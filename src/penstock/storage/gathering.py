"""Calls that wait for the end of the event loop's turn, to be decided and stored together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from penstock.core.machine import Machine
from penstock.storage.answers import Answer, answer_when_committed
from penstock.storage.journal import MessageJournal

__all__ = ["Gathering"]

T = TypeVar("T")


class Gathering(ABC):
    """What publishes, receives and acks have in common: a turn to gather in, then one answer each.

    `size` is how many bytes of the log will be needed for what has gathered.
    """

    def __init__(
        self,
        *,
        machine: Machine,
        journal: MessageJournal,
        submit: Callable[[], asyncio.Future[None] | None],
        now_ns: Callable[[], int],
    ) -> None:
        """``submit`` returns what is done when all is committed, or None when it is so already."""
        self._machine = machine
        self._journal = journal
        self._submit = submit
        self._now_ns = now_ns
        self._loop: asyncio.AbstractEventLoop | None = None
        self.size = 0

    def flush(self) -> None:
        """Decide what has gathered. Every caller is answered, whatever happens to the others."""
        self.size = 0
        self._decide()

    @abstractmethod
    def _decide(self) -> None: ...

    def _expect(self, size: int) -> asyncio.Future[T]:
        """What a caller waits for. ``size`` is what its call takes in the log, at most."""
        if self._loop is None:
            # Asked once: it costs a system call.
            self._loop = asyncio.get_running_loop()
        self.size += size
        self._journal.before_commit(self.flush, size)
        return self._loop.create_future()

    def _answer(self, answers: list[Answer[T]], *, is_awaited: bool = False) -> None:
        """``is_awaited``: somebody was waiting for this, and will come in the next turn.

        What they do is committed together with it: so a message that is awaited is delivered after
        one sync, not two.
        """
        if is_awaited:
            assert self._loop is not None
            self._loop.call_soon(answer_when_committed, self._submit, answers)
        else:
            answer_when_committed(self._submit, answers)

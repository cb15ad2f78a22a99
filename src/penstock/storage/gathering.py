"""Calls that are gathered until the end of the event loop's turn, and stored together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from penstock.core.machine import Machine
from penstock.storage.answers import Answer, Done, answer_when_committed
from penstock.storage.journal import MessageJournal

__all__ = ["Gathering"]

T = TypeVar("T")


class Gathering(ABC):
    """What gathered publishes, receives and acks have in common.

    `size` is how many bytes in the log the gathered calls will need.
    """

    def __init__(
        self,
        *,
        machine: Machine,
        journal: MessageJournal,
        call_when_committed: Callable[[Done], None],
        now_ns: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._call_when_committed = call_when_committed
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
        """A future for a caller to await. ``size`` is the most that its call takes in the log."""
        if self._loop is None:
            # Cached, because it costs a system call.
            self._loop = asyncio.get_running_loop()
        self.size += size
        self._journal.before_commit(self.flush, size)
        return self._loop.create_future()

    def _answer(self, answers: list[Answer[T]], *, is_awaited: bool = False) -> None:
        """Answer once committed. ``is_awaited``: waiters were woken, and will run in the next turn.

        Then the commit is put off to include what they do, so that a message that is awaited is
        delivered after one sync, not two.
        """
        if is_awaited:
            assert self._loop is not None
            self._loop.call_soon(answer_when_committed, self._call_when_committed, answers)
        else:
            answer_when_committed(self._call_when_committed, answers)

"""Acks that arrive together are stored together.

Like publishes (see `gathered_publishes`), those of one turn of the event loop share an event in the
log. Each caller still gets its own outcomes, or its own error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.core.machine import Machine
from penstock.core.outcome import Outcome
from penstock.core.settling import Target, ack
from penstock.errors import PenstockError
from penstock.storage.answers import Answer, Done, reject
from penstock.storage.gathering import Gathering
from penstock.storage.journal import MessageJournal

__all__ = ["GatheredAcks"]


class _Ack(NamedTuple):
    targets: Sequence[Target]
    waiting: asyncio.Future[list[Outcome]]


class GatheredAcks(Gathering):
    """Collects acks by subscription, and applies them at the end of the loop's turn.

    If two callers ack the same message in one turn, both get `Outcome.DONE`.
    """

    def __init__(
        self,
        *,
        machine: Machine,
        journal: MessageJournal,
        call_when_committed: Callable[[Done], None],
        now_ns: Callable[[], int],
        on_acked: Callable[[str, str], bool],
    ) -> None:
        super().__init__(
            machine=machine,
            journal=journal,
            call_when_committed=call_when_committed,
            now_ns=now_ns,
        )
        self._on_acked = on_acked  # returns whether a waiter was woken for what is free now
        self._acks: dict[tuple[str, str], list[_Ack]] = {}

    def add(
        self, queue: str, subscription: str, targets: Sequence[Target], size: int
    ) -> asyncio.Future[list[Outcome]]:
        """``size`` is the most that it takes in the log."""
        waiting: asyncio.Future[list[Outcome]] = self._expect(size)
        self._acks.setdefault((queue, subscription), []).append(_Ack(targets, waiting))
        return waiting

    def _decide(self) -> None:
        gathered, self._acks = self._acks, {}
        answers: list[Answer[list[Outcome]]] = []
        is_awaited = False
        for (queue, subscription), acks in gathered.items():
            present = [one for one in acks if not one.waiting.done()]
            outcomes = self._ack(queue, subscription, present)
            if outcomes:
                answers += outcomes
                is_awaited |= self._on_acked(queue, subscription)
        if answers:
            self._answer(answers, is_awaited=is_awaited)

    def _ack(self, queue: str, subscription: str, acks: list[_Ack]) -> list[Answer[list[Outcome]]]:
        """The answers for those that were accepted; the others are rejected here."""
        targets = [target for one in acks for target in one.targets]
        try:
            outcomes = ack(self._machine, queue, subscription, targets, self._now_ns())
        except PenstockError as exc:
            if len(acks) > 1:
                # Any of them may be at fault. Nothing has changed, so try each by itself.
                return [found for one in acks for found in self._ack(queue, subscription, [one])]
            for one in acks:
                reject(one.waiting, exc)
            return []
        answers = []
        start = 0
        for one in acks:
            stop = start + len(one.targets)
            answers.append((one.waiting, outcomes[start:stop]))
            start = stop
        return answers

"""Receives that arrive together are decided and stored together.

Like publishes (see `gathered_publishes`), those of one turn of the event loop share an event in the
log: one delivery, of which each caller gets a share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from penstock.core.delivery import Handout, Want, receive_each
from penstock.core.machine import Machine
from penstock.core.message import Delivery
from penstock.core.runs import Run
from penstock.storage.answers import Done, reject
from penstock.storage.gathering import Gathering
from penstock.storage.journal import MessageJournal

__all__ = ["GatheredReceives", "Wish"]


class Wish:
    """A receive by one caller, who waits for `decided`.

    `handout` is set as soon as messages are leased for it: if the caller is cancelled before it is
    answered, they must be given back. `deliveries` is set if they were all in memory.
    """

    __slots__ = ("decided", "deliveries", "handout", "want")

    def __init__(self, want: Want, decided: asyncio.Future[None]) -> None:
        self.want = want
        self.decided = decided
        self.handout: Handout | None = None
        self.deliveries: list[Delivery] | None = None


class _Asked(NamedTuple):
    queue: str
    subscription: str
    lease_seconds: float | None


class GatheredReceives(Gathering):
    """Collects wishes by subscription and lease, and grants them at the end of the loop's turn."""

    def __init__(
        self,
        *,
        machine: Machine,
        journal: MessageJournal,
        call_when_committed: Callable[[Done], None],
        now_ns: Callable[[], int],
        deliver_nowait: Callable[[Handout], list[Delivery] | None],
    ) -> None:
        super().__init__(
            machine=machine,
            journal=journal,
            call_when_committed=call_when_committed,
            now_ns=now_ns,
        )
        self._deliver_nowait = deliver_nowait
        self._wishes: dict[_Asked, list[Wish]] = {}

    def add(
        self, queue: str, subscription: str, want: Want, lease_seconds: float | None, size: int
    ) -> Wish:
        """``size`` is the most that it takes in the log."""
        wish = Wish(want, self._expect(size))
        self._wishes.setdefault(_Asked(queue, subscription, lease_seconds), []).append(wish)
        return wish

    def _decide(self) -> None:
        gathered, self._wishes = self._wishes, {}
        for asked, wishes in gathered.items():
            present = [wish for wish in wishes if not wish.decided.done()]
            try:
                self._grant(asked, present)
            except Exception as exc:
                for wish in present:
                    reject(wish.decided, exc)

    def _grant(self, asked: _Asked, wishes: list[Wish]) -> None:
        if not wishes:
            return
        queue, subscription, lease_seconds = asked
        wants = [wish.want for wish in wishes]
        handout, shares = receive_each(
            self._machine, queue, subscription, wants, lease_seconds, self._now_ns()
        )
        if handout is not None:
            self._share_out(handout, shares, wishes)
        self._answer([(wish.decided, None) for wish in wishes])

    def _share_out(self, handout: Handout, shares: list[list[Run]], wishes: list[Wish]) -> None:
        deliveries = self._deliver_nowait(handout)
        if deliveries is not None and len(deliveries) < sum(b - a for a, b in handout.runs):
            deliveries = None  # something is missing: each caller reads its own share
        start = 0
        for wish, share in zip(wishes, shares, strict=False):  # there may be fewer shares
            wish.handout = handout._replace(runs=share)
            if deliveries is not None:
                stop = start + sum(b - a for a, b in share)
                wish.deliveries = deliveries[start:stop]
                start = stop

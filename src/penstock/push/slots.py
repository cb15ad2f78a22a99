"""How many calls there may be at once, over all subscriptions, and whose turn it is."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Holder", "Slots"]


class Holder(Protocol):
    """One who calls."""

    @property
    def is_suspect(self) -> bool:
        """Whether its last call failed."""
        ...

    def pump(self) -> None:
        """Called when it may have a slot that it did not get before."""
        ...


class Slots:
    """Counts calls, and keeps some for those who come later, so that who hangs holds up no other.

    - Whoever wants many gets more than a sixteenth of all only from the first half. The second half
      is for those who have few.
    - Those whose last call failed have a quarter together: however many endpoints are dead, the
      rest is for the living.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._first_half = total // 2
        self._few = max(1, total // 16)
        self._for_suspects = max(1, total // 4)
        self._held: dict[Holder, int] = {}
        self._waiting: dict[Holder, None] = {}  # they have none; in the order in which they came
        self.busy = 0

    def take(self, holder: Holder) -> bool:
        """If it is False, `Holder.pump` is called later, or one of its own slots comes back."""
        held = self._held.get(holder, 0)
        if self._may(holder, held):
            self.busy += 1
            self._held[holder] = held + 1
            self._waiting.pop(holder, None)
            return True
        if not held:
            self._waiting[holder] = None
        return False

    def _may(self, holder: Holder, held: int) -> bool:
        if self.busy >= self._total:
            return False
        if holder.is_suspect and self._held_by_suspects() >= self._for_suspects:
            return False
        return held < self._few or self.busy < self._first_half

    def _held_by_suspects(self) -> int:
        return sum(count for holder, count in self._held.items() if holder.is_suspect)

    def give(self, holder: Holder) -> None:
        self.busy -= 1
        held = self._held.pop(holder) - 1
        if held:
            self._held[holder] = held
        for waiting in list(self._waiting):
            if self.busy >= self._total:
                break
            waiting.pump()

    @property
    def is_contended(self) -> bool:
        """Whether somebody waits for a first slot."""
        return bool(self._waiting)

    def forget(self, holder: Holder) -> None:
        """It no longer waits."""
        self._waiting.pop(holder, None)

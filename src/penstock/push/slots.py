"""Slots: how many calls there may be at once, over all subscriptions, and whose turn is next."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Holder", "Slots"]


class Holder(Protocol):
    """A caller that takes slots."""

    @property
    def is_suspect(self) -> bool:
        """Whether its last call failed."""
        ...

    def pump(self) -> None:
        """Told when a slot may be free that it was refused before."""
        ...


class Slots:
    """Hands out slots, and keeps some for latecomers, so that a slow endpoint holds up no other.

    - A holder gets more than a sixteenth of all slots only from the first half. The second half is
      for those that hold few.
    - Those whose last call failed share a quarter: however many endpoints are dead, the rest is
      for the living.

    Taking and giving take constant time, however many hold slots or wait for one.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._first_half = total // 2
        self._few = max(1, total // 16)
        self._for_suspects = max(1, total // 4)
        self._held: dict[Holder, int] = {}
        self._held_in_doubt: dict[Holder, int] = {}  # the part of it that suspects hold
        self._suspects_total = 0
        # Those that wait hold no slot, so no call of theirs is under way, and none of them can
        # become a suspect or cease to be one. Each has the number of its turn.
        self._waiting: dict[Holder, int] = {}
        self._waiting_suspects: dict[Holder, int] = {}
        self._turn = 0
        self.busy = 0

    def take(self, holder: Holder) -> bool:
        """When it returns False, `Holder.pump` is called later, or a slot of its own comes back."""
        held = self._held.get(holder, 0)
        if self._may(holder, held):
            self.busy += 1
            self._hold(holder, held + 1)
            self.forget(holder)
            return True
        if not held:
            line = self._waiting_suspects if holder.is_suspect else self._waiting
            self._turn += 1
            line.setdefault(holder, self._turn)
        return False

    def _may(self, holder: Holder, held: int) -> bool:
        if self.busy >= self._total:
            return False
        if holder.is_suspect and self._suspects_total >= self._for_suspects:
            return False
        return held < self._few or self.busy < self._first_half

    def _hold(self, holder: Holder, count: int) -> None:
        if count:
            self._held[holder] = count
        else:
            self._held.pop(holder, None)
        self._suspects_total -= self._held_in_doubt.pop(holder, 0)
        if count and holder.is_suspect:
            self._held_in_doubt[holder] = count
            self._suspects_total += count

    def give(self, holder: Holder) -> None:
        self.busy -= 1
        self._hold(holder, self._held[holder] - 1)
        while (following := self._next()) is not None:
            self.forget(following)
            following.pump()

    def _next(self) -> Holder | None:
        """The one whose turn it is, if there is a slot for it."""
        if self.busy >= self._total:
            return None
        lines = [self._waiting] if self._waiting else []
        if self._waiting_suspects and self._suspects_total < self._for_suspects:
            lines.append(self._waiting_suspects)
        heads = [next(iter(line.items())) for line in lines]
        return min(heads, key=_turn_of)[0] if heads else None

    def is_wanted_from(self, holder: Holder) -> bool:
        """Whether somebody waits for a first slot, and could have one that this holder gives."""
        if self._waiting:
            return True
        return bool(self._waiting_suspects) and (
            holder.is_suspect or self._suspects_total < self._for_suspects
        )

    def forget(self, holder: Holder) -> None:
        """It no longer waits."""
        self._waiting.pop(holder, None)
        self._waiting_suspects.pop(holder, None)


def _turn_of(entry: tuple[Holder, int]) -> int:
    return entry[1]

"""The messages of each group, lined up for one subscription."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container

__all__ = ["Groups"]


class Groups:
    """By group, the line of messages that are unsettled and wait for no other subscription.

    The invariant: the head of a line may be delivered, and all others are parked behind it. A line
    is in queue order, except that a head that has been delivered stays in front: an earlier message
    that comes back is then next.
    """

    __slots__ = ("lines",)

    def __init__(self, lines: dict[str, list[int]] | None = None) -> None:
        self.lines: dict[str, list[int]] = {} if lines is None else lines

    @property
    def parked(self) -> int:
        return sum(len(line) - 1 for line in self.lines.values())

    def enter(
        self, group: str, index: int, leased: Container[int], tried: Container[int]
    ) -> tuple[bool, int | None]:
        """Line a message up. Returns whether it is the head, and the head that it displaced.

        A head that is ``leased`` or was ``tried`` has been delivered, so it stays.
        """
        line = self.lines.get(group)
        if line is None:
            self.lines[group] = [index]
            return True, None
        head = line[0]
        if head == index:
            return True, None
        if index < head and head not in leased and head not in tried:
            line.insert(0, index)
            return True, head
        at = bisect_left(line, index, 1)
        if at == len(line) or line[at] != index:
            line.insert(at, index)
        return False, None

    def step_back(self, group: str) -> int | None:
        """Let the head, which no longer counts as delivered, wait for earlier ones.

        Returns the new head, or None if it stays.
        """
        line = self.lines[group]
        if len(line) == 1 or line[0] < line[1]:
            return None
        line.sort()
        return line[0]

    def leave(self, group: str, index: int) -> int | None:
        """Remove a message. If it was the head, returns the new head."""
        line = self.lines.get(group)
        if line is None or index not in line:
            return None
        was_head = line[0] == index
        line.remove(index)
        if not line:
            del self.lines[group]
            return None
        return line[0] if was_head else None

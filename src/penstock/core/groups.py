"""The lines of a queue's groups, as one subscription has them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container

__all__ = ["Groups"]


class Groups:
    """By group, the messages that are unsettled and wait for no other subscription.

    The invariant: the first of a line, its head, may be delivered, and all others are parked behind
    it. They are in the order of the queue, except that a head stays in front while it may be in
    flight: an earlier message that comes back is then the next.
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
        """Whether it is the head now, and which message no longer is.

        A head that is ``leased`` or was ``tried`` has been given out, so it stays.
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

    def leave(self, group: str, index: int) -> int | None:
        """The message that is the head instead, if it was the head."""
        line = self.lines.get(group)
        if line is None or index not in line:
            return None
        was_head = line[0] == index
        line.remove(index)
        if not line:
            del self.lines[group]
            return None
        return line[0] if was_head else None

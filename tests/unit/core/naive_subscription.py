"""A subscription of the naive model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.config import SubscriptionConfig
from tests.unit.core.sent import FILTERS, Sent

if TYPE_CHECKING:
    from tests.unit.core.naive import NaiveQueue

__all__ = ["NaiveLease", "NaiveSubscription"]


class NaiveLease(NamedTuple):
    epoch: int
    deadline_ns: int | None
    deliveries: int


class NaiveSubscription:
    """A reader. Every unsettled index is in exactly one of the sets that `places` gives."""

    def __init__(
        self, *, id: int, name: str, config: SubscriptionConfig, queue: NaiveQueue, start: int
    ) -> None:
        self.id = id
        self.name = name
        self.config = config
        self.queue = queue
        self.dead: set[int] = set()
        self.acked: set[int] = set()
        self.move(start)

    def move(self, start: int) -> None:
        self.unsettled = {
            sent.index for sent in self.queue.sent if sent.index >= start and self.wants(sent)
        }
        self.dead = {index for index in self.dead if index < start}
        self.acked = {index for index in self.acked if index < start}
        self.revived: set[int] = set()
        self.leases: dict[int, NaiveLease] = {}
        self.tries: dict[int, int] = {}
        self.due_ns: dict[int, int] = {}
        self.granted: set[int] = set()

    def wants(self, sent: Sent) -> bool:
        return FILTERS[self.config.filter](sent)

    @property
    def parents(self) -> list[NaiveSubscription]:
        return [self.queue.subscriptions[name] for name in self.config.after]

    def lets_pass(self, index: int, *, dead_too: bool) -> bool:
        return index not in self.unsettled and (dead_too or index not in self.dead)

    def grant(self) -> None:
        dead_too = self.config.on_dead_parent == "ignore"
        if self.config.after:
            self.granted |= {
                sent.index
                for sent in self.queue.sent
                if all(parent.lets_pass(sent.index, dead_too=dead_too) for parent in self.parents)
            }

    def rewire(self) -> None:
        """What was delivered stays; all else waits for the parents of now."""
        self.granted = self.leases.keys() | self.tries.keys()

    def settle(self, indexes: list[int]) -> None:
        for index in indexes:
            assert index in self.unsettled, f"{index} was settled twice on {self.name}"
            self.unsettled.remove(index)
            for places in (self.leases, self.tries, self.due_ns):
                places.pop(index, None)

    # Where messages must be.

    @property
    def held(self) -> set[int]:
        return self.unsettled - self.granted if self.config.after else set()

    @property
    def lines(self) -> dict[str, list[int]]:
        """The groups: the one that was given out first, the others by index."""
        lines: dict[str, list[int]] = {}
        for index in sorted(self.unsettled - self.held):
            group = self.queue.group_of(index)
            if group is not None:
                lines.setdefault(group, []).append(index)
        for line in lines.values():
            line.sort(key=lambda index: (index not in self.given, index))
        return lines

    @property
    def given(self) -> set[int]:
        return self.leases.keys() | self.tries.keys()

    @property
    def parked(self) -> set[int]:
        return {index for line in self.lines.values() for index in line[1:]}

    @property
    def ready_or_delayed(self) -> set[int]:
        return self.unsettled - self.held - self.parked - self.leases.keys()

    def delayed(self, now_ns: int) -> set[int]:
        return {index for index in self.ready_or_delayed if self.due_of(index) > now_ns}

    def due_of(self, index: int) -> int:
        if index in self.tries:
            return self.due_ns.get(index, 0)
        return self.queue.sent[index].due_ns

    def ready(self, now_ns: int) -> list[int]:
        """In the order in which they must be given."""
        return sorted(
            self.ready_or_delayed - self.delayed(now_ns),
            key=lambda index: (-self.queue.sent[index].envelope.priority, index),
        )

    @property
    def floor(self) -> int:
        return min(self.unsettled, default=self.queue.next)

"""Which subscription waits for which, and which message for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.core.stats import SubscriptionStats

__all__ = ["Edge", "Graph", "HeldMessage", "Node", "graph_of"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription. `held` messages wait here for others."""

    name: str
    filter: str | None
    ready: int
    held: int


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """`after` gets a message once `before` has taken it; or what `on_dead_parent` says."""

    before: str
    after: str
    on_dead_parent: str


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    subscriptions: list[Node]
    dependencies: list[Edge]


class HeldMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is not delivered yet, and the subscriptions that have not taken it."""

    index: int
    waits_for: list[str]


def graph_of(queue: str, subscriptions: Sequence[SubscriptionStats]) -> Graph:
    return Graph(
        queue=queue,
        subscriptions=[
            Node(name=one.name, filter=one.config.filter, ready=one.ready, held=one.held)
            for one in subscriptions
        ],
        dependencies=[
            Edge(before=parent, after=one.name, on_dead_parent=one.config.on_dead_parent)
            for one in subscriptions
            for parent in one.config.after
        ],
    )

"""The dependencies between the subscriptions of a queue, and what each message waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.core.stats import SubscriptionStats

__all__ = ["Edge", "Graph", "HeldMessage", "Node", "graph_of"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription. `held` counts its messages that wait for other subscriptions."""

    name: str
    filter: str | None
    ready: int
    held: int


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """`after` gets a message once `before` has settled it. `on_dead_parent` is for dead letters."""

    before: str
    after: str
    on_dead_parent: str


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    subscriptions: list[Node]
    dependencies: list[Edge]


class HeldMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is held back, and the subscriptions that it waits for."""

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

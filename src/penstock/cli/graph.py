"""Which subscription waits for which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.core.stats import SubscriptionStats

__all__ = ["Edge", "Graph", "Node", "graph_of", "mermaid"]


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


def mermaid(graph: Graph) -> str:
    """From the queue to those who wait for nobody, and on to those who wait for them."""
    ids = {one.name: f"s{number}" for number, one in enumerate(graph.subscriptions)}
    lines = ["flowchart LR", f'    q[("{graph.queue}")]']
    for node in graph.subscriptions:
        held = f"<br/>{node.held} held" if node.held else ""
        lines.append(f'    {ids[node.name]}["{node.name}{held}"]')
    waiting = {edge.after for edge in graph.dependencies}
    lines += [
        f"    q -->{_label(node.filter or '')} {ids[node.name]}"
        for node in graph.subscriptions
        if node.name not in waiting
    ]
    for edge in graph.dependencies:
        # Holding is what everybody expects.
        how = "" if edge.on_dead_parent == "hold" else edge.on_dead_parent
        lines.append(f"    {ids[edge.before]} -->{_label(how)} {ids[edge.after]}")
    return "\n".join(lines)


def _label(text: str) -> str:
    """On an arrow. What has a meaning in the language is written as a number."""
    if not text:
        return ""
    shown = "".join(one if one.isalnum() or one in " ._=" else f"#{ord(one)};" for one in text)
    return f'|"{shown}"|'

"""Which subscriptions wait for which: ``C after (A, B)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import InvalidDependency

__all__ = ["check_dependencies"]


def check_dependencies(name: str, after: Sequence[str], graph: Mapping[str, Sequence[str]]) -> None:
    """Raises `InvalidDependency` unless ``name`` may wait for ``after``.

    ``graph`` maps every subscription of the queue to those it waits for. An unknown
    subscription, itself, a repeated one and a cycle are refused; the message shows the cycle.
    """
    if len(set(after)) != len(after):
        raise InvalidDependency(f"{name!r} names a subscription twice in after: {list(after)}")
    for parent in after:
        if parent == name:
            raise InvalidDependency(f"{name!r} cannot wait for itself")
        if parent not in graph:
            raise InvalidDependency(
                f"{name!r} cannot wait for {parent!r}: the queue has no such subscription; "
                "create it first"
            )
        path = _path(parent, name, graph)
        if path:
            raise InvalidDependency(
                "this would make a cycle, in which nobody could ever begin: "
                + " after ".join([name, *path])
            )


def _path(start: str, goal: str, graph: Mapping[str, Sequence[str]]) -> list[str]:
    """A path from start to goal along ``after``; empty if there is none."""
    trail: list[tuple[str, list[str]]] = [(start, [start])]
    seen = {start}
    while trail:
        at, path = trail.pop()
        if at == goal:
            return path
        for parent in graph.get(at, ()):
            if parent not in seen:
                seen.add(parent)
                trail.append((parent, [*path, parent]))
    return []

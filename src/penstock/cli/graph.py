"""Which subscription waits for which, drawn in Mermaid."""

from __future__ import annotations

from penstock.core.graph import Graph

__all__ = ["mermaid"]


def mermaid(graph: Graph) -> str:
    """A flowchart from the queue to those that wait for nobody, and on to those after them."""
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
        # To hold is the default.
        how = "" if edge.on_dead_parent == "hold" else edge.on_dead_parent
        lines.append(f"    {ids[edge.before]} -->{_label(how)} {ids[edge.after]}")
    return "\n".join(lines)


def _label(text: str) -> str:
    """A label on an arrow. Characters that mean something in Mermaid are escaped as numbers."""
    if not text:
        return ""
    shown = "".join(one if one.isalnum() or one in " ._=" else f"#{ord(one)};" for one in text)
    return f'|"{shown}"|'

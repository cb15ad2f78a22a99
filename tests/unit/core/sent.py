"""A published message as the naive model keeps it, and which filters want it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.core import events as ev
from penstock.core.message import Envelope
from penstock.core.runs import Run

__all__ = ["FILTERS", "Sent", "indexes_in", "indexes_of"]


@dataclass(frozen=True, kw_only=True)
class Sent:
    index: int
    created_ns: int
    envelope: Envelope
    body: bytes

    @property
    def due_ns(self) -> int:
        due_ns = self.envelope.not_before_ns or 0
        return due_ns if due_ns > self.created_ns else 0


FILTERS: Mapping[str | None, Callable[[Sent], bool]] = {
    None: lambda sent: True,
    'topic == "red"': lambda sent: sent.envelope.topic == "red",
    "priority > 4": lambda sent: sent.envelope.priority > 4,
    'body == "odd"': lambda sent: sent.body == b'"odd"',
}
"""Some filters, and what they mean."""


def indexes_of(runs: list[Run]) -> list[int]:
    """The indexes of runs, in the order of the runs."""
    return [index for start, stop in runs for index in range(start, stop)]


def indexes_in(bounds: list[int]) -> list[int]:
    """The indexes of runs as events write them."""
    return indexes_of(ev.pairs(bounds))

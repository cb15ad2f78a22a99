"""A machine to load the state of a directory into: it applies events, and never emits any."""

from __future__ import annotations

from random import Random

from penstock.core.events import Event
from penstock.core.machine import Machine, Place

__all__ = ["blank_machine"]


class _NoJournal:
    """For a machine that must never emit an event."""

    def append(self, event: Event) -> Place:
        raise AssertionError(f"a machine that is only looked at emitted {event}")


def blank_machine(rng: Random | None = None) -> Machine:
    return Machine(journal=_NoJournal(), rng=rng or Random(0))

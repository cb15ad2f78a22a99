"""A machine that is to be brought to the state a directory holds: it applies, and never emits."""

from __future__ import annotations

from random import Random

from penstock.core.events import Event
from penstock.core.machine import Machine, Place

__all__ = ["blank_machine"]


class _NoJournal:
    """Events are applied to such a machine; it must never emit one."""

    def append(self, event: Event) -> Place:
        raise AssertionError(f"a machine that is only looked at emitted {event}")


def blank_machine(rng: Random | None = None) -> Machine:
    return Machine(journal=_NoJournal(), rng=rng or Random(0))

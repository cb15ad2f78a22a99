"""What all who call have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.broker import Broker
from penstock.clock import Clock
from penstock.push.slots import Slots
from penstock.push.transport import Transport

__all__ = ["CALLING", "WRITING", "Means", "Spawn"]

CALLING = "calling"
"""The name of a task that calls: at the end it is given some time."""
WRITING = "writing"
"""The name of a task that writes what was answered: it is never cancelled, for it has an end."""


class Spawn(Protocol):
    """Starts a task, and sees to its end."""

    def __call__(self, work: Coroutine[Any, Any, None], name: str = "") -> asyncio.Task[None]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """Where messages come from, how calls are made, and how many at once."""

    broker: Broker
    transport: Transport
    slots: Slots
    clock: Clock
    spawn: Spawn

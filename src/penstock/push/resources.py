"""What every caller shares: the broker, connections, slots, a clock, and a way to start tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.broker import Broker
from penstock.clock import Clock
from penstock.push.slots import Slots
from penstock.push.transport import Transport

__all__ = ["CALLING", "WRITING", "Resources", "Spawn"]

CALLING = "calling"
"""The name of a task that makes calls: at shutdown it is given some time to finish."""
WRITING = "writing"
"""The name of a task that settles what was answered: never cancelled, because it ends by itself."""


class Spawn(Protocol):
    """Starts a task, and keeps track of it until it ends."""

    def __call__(self, work: Coroutine[Any, Any, None], name: str = "") -> asyncio.Task[None]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """Where messages come from, how calls are made, and how many there may be at once."""

    broker: Broker
    transport: Transport
    slots: Slots
    clock: Clock
    spawn: Spawn

"""The event loop that a measurement runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, TypeVar

import uvloop

LoopName = Literal["uvloop", "asyncio"]
T = TypeVar("T")


def run_on(loop: LoopName, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a new event loop of that kind."""
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)

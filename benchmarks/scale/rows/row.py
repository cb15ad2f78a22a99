"""A row of the table: a name, what it measures, and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from benchmarks.engine.rows.row import Outcome
from benchmarks.scale.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    name: str
    """What `--only` takes."""
    what: str
    measure: Callable[[Run], Coroutine[Any, Any, Outcome]]

"""A row of the table: a name, what it measures, and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from benchmarks.harness.verdict import Verdict

Run = TypeVar("Run")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    verdicts: tuple[Verdict, ...]
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Row(Generic[Run]):
    name: str
    """What `--only` takes."""
    what: str
    measure: Callable[[Run], Coroutine[Any, Any, Outcome]]
    """Runs on an event loop of its own. It may block it while nothing else is to run."""


def by_contender(rounds: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """The figures of each contender over the rounds, from the figures of each round."""
    found: dict[str, list[float]] = {}
    for figures in rounds:
        for name, figure in figures.items():
            found.setdefault(name, []).append(figure)
    return found

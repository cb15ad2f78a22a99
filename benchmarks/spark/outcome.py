"""What a row has found."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.harness.verdict import Verdict
from benchmarks.spark.bench import Bench


class Outcome(NamedTuple):
    verdicts: tuple[Verdict, ...]
    samples: dict[str, list[float]]
    notes: tuple[str, ...] = ()


class Row(NamedTuple):
    name: str
    what: str
    measure: Callable[[Bench], Outcome]

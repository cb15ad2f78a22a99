"""The report of a run: what is written as JSON, and what `--check` decides by."""

from __future__ import annotations

import msgspec

from benchmarks.harness.machine import Machine
from benchmarks.harness.verdict import Verdict


class RowReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one row found. `error` is set, and nothing else, where the row could not finish."""

    name: str
    what: str
    seconds: float
    verdicts: tuple[Verdict, ...] = ()
    samples: dict[str, list[float]] = {}
    """Every contender's figure, round by round."""
    notes: tuple[str, ...] = ()
    error: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. `format` changes whenever a field changes its meaning."""

    format: int = 1
    subject: str = "Penstock's engine"
    quick: bool
    rounds: int
    loop: str
    machine: Machine
    missing_peers: tuple[str, ...]
    rows: tuple[RowReport, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for everything that keeps the run from passing; empty when it passes."""
        found = [f"the peer {name} is not installed" for name in self.missing_peers]
        for row in self.rows:
            if row.error is not None:
                found.append(f"{row.name}: {row.error}")
            found.extend(
                f"{row.name}: {verdict.what}: {verdict.figure:.3g}, the bar is {verdict.bar}"
                for verdict in row.verdicts
                if verdict.status == "missed"
            )
        return tuple(found)

"""Running histories, and saying how to run one again."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass

import uvloop

from tests.simulation.history import Violation
from tests.simulation.simulation import Plan, Simulation


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A seed whose history the store did not survive, and why."""

    seed: int
    invariant: str
    report: str

    def __str__(self) -> str:
        return f"{self.report}\n\nRun it again with: make simulate SEED={self.seed}"


def run_seed(seed: int, plan: Plan | None = None, *, verbose: bool = False) -> Failure | None:
    """One history; None when all went well."""
    simulation = Simulation(seed, plan or Plan(), verbose=verbose)
    try:
        # As the server does. A history is the same, line by line, as in asyncio's own loop.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(simulation.run())
    except Violation as exc:
        return _failure(seed, exc, simulation)
    except Exception as exc:
        violation = Violation("unexpected error", repr(exc))
        violation.__cause__ = exc
        return _failure(seed, violation, simulation)
    return None


def _failure(seed: int, violation: Violation, simulation: Simulation) -> Failure:
    lines = [f"seed {seed} broke an invariant.", "", str(violation)]
    if violation.__cause__ is not None:
        lines += ["", "".join(traceback.format_exception(violation.__cause__)).rstrip()]
    lines += ["", "The history that matters, with the moments in brackets:"]
    lines.append(simulation.history.about(violation.words))
    invariant = str(violation).partition(":")[0]
    return Failure(seed=seed, invariant=invariant, report="\n".join(lines))

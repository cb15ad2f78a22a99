from __future__ import annotations

import asyncio

import pytest

from tests.simulation.runner import run_seed
from tests.simulation.simulation import Plan, Simulation

SEEDS = 200
AT_ONCE = 25  # one test each, so that test processes can share them


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_two_hundred_random_histories_with_faults_break_no_promise(first: int) -> None:
    # Given histories of many clients over a disk that loses, tears and refuses writes,
    # when they are run, each from a seed of its own,
    seeds = range(first, first + AT_ONCE)
    failures = [failure for seed in seeds if (failure := run_seed(seed)) is not None]

    # then no answer contradicts another.
    if failures:
        failed = " ".join(str(failure.seed) for failure in failures)
        pytest.fail(f"{failures[0]}\n\nAll that failed: {failed}", pytrace=False)


def test_a_seed_makes_the_same_history_each_time() -> None:
    # Given a seed, when its history is made twice,
    first, second = (record(7) for _ in range(2))

    # then both are the same, line by line.
    assert len(first) > 100
    assert first == second


def record(seed: int) -> list[str]:
    simulation = Simulation(seed, Plan())
    asyncio.run(simulation.run())
    return simulation.history.lines

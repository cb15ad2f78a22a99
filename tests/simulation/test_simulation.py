from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.simulation.runner import run_seed
from tests.simulation.simulation import Plan, Simulation

SEEDS = 200
PROCESSES = 2


def test_two_hundred_random_histories_with_faults_break_no_promise() -> None:
    # Given histories of many clients over a disk that loses, tears and refuses writes,
    # when they are run, each from a seed of its own,
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        failures = [f for f in pool.map(run_seed, range(SEEDS), chunksize=5) if f is not None]

    # then no answer contradicts another.
    seeds = " ".join(str(failure.seed) for failure in failures)
    if failures:
        pytest.fail(f"{failures[0]}\n\nAll that failed: {seeds}", pytrace=False)


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

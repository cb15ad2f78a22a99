from __future__ import annotations

import asyncio

import pytest

from benchmarks.harness.sample import Sample, Slice, repeated, take_turns


def test_contenders_take_turns_in_an_order_that_turns_round() -> None:
    order: list[str] = []

    asyncio.run(take_turns({"a": _logged(order, "a"), "b": _logged(order, "b")}, slices=2))

    assert order == ["a", "b", "b", "a"]


def test_a_rate_is_all_messages_over_all_seconds() -> None:
    samples = iter([Sample(messages=10, seconds=1.0), Sample(messages=50, seconds=2.0)])

    async def run() -> Sample:
        return next(samples)

    assert asyncio.run(take_turns({"a": run}, slices=2)) == {"a": 20.0}


def test_a_repeated_step_runs_for_about_its_time() -> None:
    sample = asyncio.run(repeated(lambda: 7, seconds=0.02)())

    assert sample.messages % 7 == 0
    assert sample.seconds == pytest.approx(0.02, abs=0.02)


def _logged(order: list[str], name: str) -> Slice:
    async def run() -> Sample:
        order.append(name)
        return Sample(messages=1, seconds=1.0)

    return run

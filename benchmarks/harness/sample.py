"""Samples: how many messages took how long, and contenders that take turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    messages: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


Slice = Callable[[], Coroutine[Any, Any, Sample]]


def total(samples: Sequence[Sample]) -> Sample:
    return Sample(
        messages=sum(sample.messages for sample in samples),
        seconds=sum(sample.seconds for sample in samples),
    )


async def take_turns(contenders: Mapping[str, Slice], *, slices: int) -> dict[str, float]:
    """One round: each contender runs `slices` times, in turn; returns the rate of each.

    The turns are short, so that a disk or a machine which slows down for a while slows down
    everyone. The order turns round each time, so that nobody always runs after the same one.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    order = list(contenders.items())
    for _ in range(slices):
        for name, run in order:
            gc.collect()
            samples[name].append(await run())
        order.reverse()
    return {name: total(taken).rate for name, taken in samples.items()}


def repeated(step: Callable[[], int], *, seconds: float) -> Slice:
    """A slice that calls a blocking `step`, which returns its messages, until time is up."""

    async def run() -> Sample:
        done = 0
        start = perf_counter()
        deadline = start + seconds
        while perf_counter() < deadline:
            done += step()
        return Sample(messages=done, seconds=perf_counter() - start)

    return run

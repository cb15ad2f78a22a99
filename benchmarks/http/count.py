"""Counting what handlers do, until a number or a time is reached."""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks.harness.sample import Sample


class Count:
    """Made at the beginning of a measurement, inside the event loop."""

    def __init__(self, seconds: float, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self._limit = limit
        self._done = 0
        self._start = perf_counter()
        self._sample: asyncio.Future[Sample] = loop.create_future()
        self._timer = loop.call_later(seconds, self._end)

    def add(self) -> None:
        self._done += 1
        if self._done == self._limit:
            self._end()

    async def reached(self) -> Sample:
        return await self._sample

    def _end(self) -> None:
        if not self._sample.done():
            self._timer.cancel()
            seconds = perf_counter() - self._start
            self._sample.set_result(Sample(messages=self._done, seconds=seconds))

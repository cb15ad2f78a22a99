"""Time the start of a store; then either stop cleanly, or work until killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter

import msgspec

import penstock
from benchmarks.engine.process import read_task, say
from benchmarks.engine.scale import BATCH
from benchmarks.engine.store import QUEUE, make_bodies, open_store, receive_and_ack
from benchmarks.harness.loops import LoopName, run_on

WORKERS = 16
PATIENCE_SECONDS = 120.0
"""A worker that nobody kills ends by itself after this, so that none is left behind."""


class StartTask(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    work: bool
    loop: LoopName


class Started(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    """From the call of open until the first message was received and acked."""


async def work(broker: penstock.Broker, deadline: float) -> None:
    batch = make_bodies(BATCH)
    while perf_counter() < deadline:
        await broker.publish(QUEUE, batch)
        await receive_and_ack(broker, limit=BATCH)


async def start(task: StartTask) -> None:
    """The first message counts as part of the start: a store that loads later gains nothing."""
    began = perf_counter()
    async with open_store(Path(task.directory), sync="always") as broker:
        done = await receive_and_ack(broker, limit=1)
        seconds = perf_counter() - began
        if done != 1:
            raise RuntimeError("the backlog is empty after the start")
        await broker.publish(QUEUE, make_bodies(1))
        say(Started(seconds=seconds))
        if not task.work:
            return
        await asyncio.gather(*(work(broker, began + PATIENCE_SECONDS) for _ in range(WORKERS)))
    raise RuntimeError(f"not killed within {PATIENCE_SECONDS:g} s")


if __name__ == "__main__":
    task = read_task(StartTask)
    run_on(task.loop, start(task))

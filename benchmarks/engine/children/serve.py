"""Open a store, and time a number of receives and acks whenever asked."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import msgspec

from benchmarks.engine.process import read_task, say
from benchmarks.engine.scale import BATCH
from benchmarks.engine.store import QUEUE, make_bodies, open_store, receive_and_ack
from benchmarks.harness.loops import LoopName, run_on


class ServeTask(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    fill: int
    """If not 0, the directory is empty: make the queue, with this many messages, first."""
    loop: LoopName


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The store is open; from here on each line of input is a number of batches."""


class Batches(msgspec.Struct, frozen=True, kw_only=True):
    """How long so many receives and acks took together."""

    seconds: float


async def serve(task: ServeTask) -> None:
    """What is acked is published again, outside the time taken, so the depth stays the same."""
    batch = make_bodies(BATCH)
    async with open_store(Path(task.directory), sync="always") as broker:
        if task.fill:
            await broker.create_queue(QUEUE)
            for _ in range(task.fill // BATCH):
                await broker.publish(QUEUE, batch)
        say(Ready())
        for line in sys.stdin:
            seconds = 0.0
            for _ in range(int(line)):
                start = perf_counter()
                done = await receive_and_ack(broker, limit=BATCH)
                seconds += perf_counter() - start
                if done != BATCH:
                    raise RuntimeError(f"received {done} of {BATCH} from a backlog")
                await broker.publish(QUEUE, batch)
            say(Batches(seconds=seconds))


if __name__ == "__main__":
    task = read_task(ServeTask)
    run_on(task.loop, serve(task))

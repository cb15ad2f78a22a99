"""Open a store, do a little of everything with it, and say what memory that takes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.engine.memory import measure_memory
from benchmarks.engine.process import read_task, say
from benchmarks.engine.scale import BATCH
from benchmarks.engine.store import QUEUE, make_bodies, open_store, receive_and_ack
from benchmarks.harness.loops import LoopName, run_on

WARM_UP_BATCHES = 20


class HoldTask(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    create: bool
    """The directory is empty: make the queue first."""
    loop: LoopName


async def hold(task: HoldTask) -> None:
    """The warm-up is the same for every store, and leaves its backlog as long as it was."""
    batch = make_bodies(BATCH)
    async with open_store(Path(task.directory), sync="always") as broker:
        if task.create:
            await broker.create_queue(QUEUE)
        for _ in range(WARM_UP_BATCHES):
            await broker.publish(QUEUE, batch)
            await receive_and_ack(broker, limit=BATCH)
        memory = measure_memory()
    say(memory)


if __name__ == "__main__":
    task = read_task(HoldTask)
    run_on(task.loop, hold(task))

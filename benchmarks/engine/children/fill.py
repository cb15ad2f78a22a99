"""Fill a new store with a backlog, then stop cleanly."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.engine.loops import LoopName, run_on
from benchmarks.engine.memory import Memory, measure_memory
from benchmarks.engine.process import read_task, say
from benchmarks.engine.store import QUEUE, make_bodies, open_store, publish_count

FILL_BATCH = 1_000
FILL_TASKS = 4
STEPS = 100


class FillTask(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    messages: int
    loop: LoopName
    batch: int = FILL_BATCH
    tasks: int = FILL_TASKS


class FillReport(msgspec.Struct, frozen=True, kw_only=True):
    """Said about a hundred times on the way, and once more, with `memory`, at the end."""

    done: int
    memory: Memory | None = None


async def fill(task: FillTask) -> None:
    """Publish without syncs: here it is the backlog that counts, not how it came about."""
    batch = make_bodies(task.batch)
    step = max(task.batch, task.messages // STEPS // task.batch * task.batch)
    async with open_store(Path(task.directory), sync="never") as broker:
        await broker.create_queue(QUEUE)
        done = 0
        while done < task.messages:
            size = min(step, task.messages - done)
            await publish_count(broker, batch, tasks=task.tasks, messages=size)
            done += size
            say(FillReport(done=done))
        memory = measure_memory()
    say(FillReport(done=done, memory=memory))


if __name__ == "__main__":
    task = read_task(FillTask)
    run_on(task.loop, fill(task))

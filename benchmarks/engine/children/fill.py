"""Fill a new store with a backlog, then stop cleanly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from benchmarks.engine.memory import Memory, measure_memory
from benchmarks.engine.process import read_task, say
from benchmarks.engine.store import QUEUE, make_bodies, open_store, publish_count
from benchmarks.harness.loops import LoopName, run_on
from penstock import Broker

FILL_BATCH = 1_000
FILL_TASKS = 4
SINGLE_QUEUES = 20
STEPS = 100


class FillTask(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    messages: int
    loop: LoopName
    is_single: bool = False
    """One message a record: several queues, each published to one message after the other."""


class FillReport(msgspec.Struct, frozen=True, kw_only=True):
    """Said about a hundred times on the way, and once more, with `memory`, at the end."""

    done: int
    memory: Memory | None = None


async def fill(task: FillTask) -> None:
    """Publish without syncs: here it is the backlog that counts, not how it came about."""
    batch = make_bodies(FILL_BATCH)
    step = max(FILL_BATCH, task.messages // STEPS // FILL_BATCH * FILL_BATCH)
    async with open_store(Path(task.directory), sync="never") as broker:
        await broker.create_queue(QUEUE)
        done = 0
        while done < task.messages:
            size = min(step, task.messages - done)
            if task.is_single:
                await _publish_singly(broker, batch[0], messages=size)
            else:
                await publish_count(broker, batch, tasks=FILL_TASKS, messages=size)
            done += size
            say(FillReport(done=done))
        memory = measure_memory()
    say(FillReport(done=done, memory=memory))


async def _publish_singly(broker: Broker, body: bytes, *, messages: int) -> None:
    async def publish(queue: str) -> None:
        for _ in range(messages // SINGLE_QUEUES):
            await broker.publish(queue, [body])

    queues = [f"{QUEUE}-{number}" for number in range(SINGLE_QUEUES)]
    there = {queue.name for queue in await broker.stats()}
    for queue in queues:
        if queue not in there:
            await broker.create_queue(queue)
    await asyncio.gather(*(publish(queue) for queue in queues))


if __name__ == "__main__":
    task = read_task(FillTask)
    run_on(task.loop, fill(task))

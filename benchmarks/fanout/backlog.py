"""A backlog that is called back as fast as it goes."""

from __future__ import annotations

from benchmarks.fanout.bodies import make_body
from benchmarks.fanout.endpoint import Arrivals, stamped
from benchmarks.fanout.scale import CONCURRENCY
from benchmarks.fanout.stage import Stage
from penstock import NewMessage

BATCH = 500


async def drained(on: Stage, calls: int, topics: int = 1) -> Arrivals:
    """Publish to subscriptions that are there, each by its own topic; until all was called."""
    queue = await on.queue()
    for topic in range(topics):
        await on.subscribe(
            queue,
            f"topic-{topic}",
            f"topic-{topic}",
            filter=f'topic == "topic-{topic}"',
            concurrency=CONCURRENCY,
        )
    body = make_body()
    await on.take()
    for start in range(0, calls, BATCH):
        numbers = range(start, min(start + BATCH, calls))
        await on.admin.publish(
            queue, [NewMessage(body=stamped(body), topic=f"topic-{n % topics}") for n in numbers]
        )
    await on.wait_for(calls)
    arrivals = await on.take()
    await on.admin.delete_queue(queue)
    return arrivals

"""``python -m penstock.demo [DIR]``: a queue on the embedded store, and what can be seen of it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from rich.console import Console
from rich.table import Table

import penstock
from penstock.errors import QueueExists

__all__ = ["main", "run"]

QUEUE = "demo"
BODIES = [b"hello", b"from", b"Penstock"]


async def run(directory: str, out: Console) -> None:
    """Publish, receive and ack a few messages. Can be repeated."""
    async with penstock.open(directory) as broker:
        with suppress(QueueExists):
            await broker.create_queue(QUEUE)
        published = await broker.publish(QUEUE, BODIES)
        out.print(
            f"Published {len(published)} messages to the queue {QUEUE!r}, "
            f"with durability {published.durability!r}."
        )
        deliveries = await broker.receive(QUEUE, limit=100)
        table = Table("index", "id", "body", "deliveries")
        for delivery in deliveries:
            body = delivery.body.decode(errors="replace")
            table.add_row(str(delivery.index), delivery.id, body, str(delivery.deliveries))
        out.print(table)
        await broker.ack(QUEUE, [delivery.receipt for delivery in deliveries])
        stats = await broker.queue_stats(QUEUE)
        unsettled = stats.next_index - stats.subscriptions[0].lowest_unacked_index
        out.print(
            f"Received and acked {len(deliveries)}. The queue now holds {stats.messages} messages "
            f"of its history, {unsettled} of them not settled."
        )
    out.print(f"The data is in {directory}. To see what is there, run:", highlight=False)
    out.print(f"  penstock wal inspect {directory}", highlight=False, soft_wrap=True)


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else "./data"
    asyncio.run(run(directory, Console()))


if __name__ == "__main__":
    main()
